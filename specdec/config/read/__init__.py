"""From files, dicts and the command line to plain data.

Enters: YAML or JSON text, overrides in Hydra's grammar. Leaves: plain values, each with the file, line and column it came from.
No meaning is given to keys here.
"""
