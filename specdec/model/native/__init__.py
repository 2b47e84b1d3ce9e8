"""The native CPU path of a loaded model: which of its modules the kernels can stand for, compared before they do.

In: a transformers model. Out: one call over all its layers, or nothing where the results differ.
"""
