"""What is wrong, where, and how it is told.

Enters: a fault that any other room found. Leaves: a ``Diagnostic`` with its place, its nearest known name, its text.
Everything in ``specdec.config`` may import this room; it imports none.
"""
