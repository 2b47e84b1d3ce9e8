"""The native CPU path of draft networks: compared with the torch modules before it stands for them.

In: a network that says what it consists of. Out: one call a round, or nothing where the results differ.
"""
