"""The contract of a configuration file, generated from the records, and the check against it.

Enters: a registry, and the data that was read. Leaves: a JSON Schema; the data without its faulty values; a finding for each of these,
in words made for people.
"""
