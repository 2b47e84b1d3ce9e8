"""Targets with recurrent layers: snapshots of their states, the modules that keep them, and how those are found.

In: a batch whose rows may be rejected. Out: the states behind each row, to go on from the last accepted one.
"""
