"""A Hydra plugin: the records of specdec as options of the group ``speculative`` in any Hydra application.

In: the built-in records and those of installed packages. Out: one option per record, whose keys are the record's
options, all unset: ``speculative=ngram speculative.num_speculative_tokens=4``.
"""

from hydra_plugins.specdec_records.plugin import SpecdecRecords

__all__ = ["SpecdecRecords"]
