"""What a record may say: its parts, its expressions and the options it declares.

Enters: parts of a record as plain data. Leaves: record types, compiled CEL expressions, pydantic models of options.
Where records come from is the business of ``records``.
"""
