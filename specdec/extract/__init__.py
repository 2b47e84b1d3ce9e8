"""Training data for drafts: hidden states of a target over prompts, as files."""
