"""``resolve``: everything that the rooms below know, put together.

Enters: a file or dict, overrides, a registry. Leaves: a ``Resolution``, the finalized configuration or all that is wrong with it.
Rules of the records run here.
"""
