"""From a name to files that transformers can load: location, GGUF conversion, support checks.

In: a directory, .gguf file, hub id or packaged name. Out: a folder to load, or a ``TargetError`` that says why not.
"""
