"""What a configuration, a record or a code means, as text and tables.

Enters: a finalized configuration, or a registry. Leaves: plans, explanations, matrices, a first file.
Nothing is decided here.
"""
