"""From a ``Checkpoint`` to canonical facts.

Enters: a raw config under whatever keys its writer chose. Leaves: facts with their origin, rewritten configs, the record that it declares.
Which key means what stands in the records.
"""
