"""A transformers model over slots of a KV cache: what targets and language-model drafts run on.

In: a checkpoint, and batches of requests of different lengths. Out: logits and hidden states of their rows.
It knows nothing of speculation, queues or sampling.
"""
