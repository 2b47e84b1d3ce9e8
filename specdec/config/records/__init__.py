"""From ``speculators.yaml``, packages and a user's records to one immutable registry.

Enters: documents of records. Leaves: a ``Registry`` of ``SpeculatorRecord`` and ``TargetRecord``, with ``extends`` and ``use`` resolved,
checked against their schema; and the fields of ``target:``, ``engine:`` and ``sampling:``.
"""
