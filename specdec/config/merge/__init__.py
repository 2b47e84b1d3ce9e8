"""From checked data, checkpoints and records to values with an origin.

Enters: what the command line, the file, a checkpoint and a record each say. Leaves: one value for each option and setting, and what it beat.
Which method runs is decided here too.
"""
