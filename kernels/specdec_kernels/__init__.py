"""Verification and drafting operations: a PyTorch reference each (the truth), and a Triton kernel that matches it."""
