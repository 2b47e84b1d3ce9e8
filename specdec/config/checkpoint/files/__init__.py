"""From a path or hub id to a ``Checkpoint``.

Enters: a directory, config.json, safetensors, GGUF, a cached hub repository. Leaves: the raw config, names and shapes of tensors, the tokenizer.
No weights are loaded and nothing is downloaded.
"""
