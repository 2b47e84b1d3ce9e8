"""Settings of other engines, and older specdec files, as a specdec configuration.

Enters: flags, JSON or YAML of another engine, or a file with yesterday's names. Leaves: a configuration, and what had to stay behind.
The names of other engines are data, in ``foreign.yaml``.
"""
