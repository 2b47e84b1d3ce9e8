"""Whether a draft checkpoint agrees with itself, with its target and with the record that is to run it.

Enters: a draft's checkpoint and facts, the target's facts, a record. Leaves: an ``Inspection``, or findings.
One module a kind of contradiction.
"""
