"""Verification and drafting operations: each has a PyTorch reference (the truth) and a Triton kernel that matches it."""
