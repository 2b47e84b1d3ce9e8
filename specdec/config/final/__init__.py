"""The finalized ``SpeculativeConfig`` and its parts.

Enters: merged values. Leaves: the frozen configuration, its wiring, verification, memory and hash.
Nothing here reads a file.
"""
