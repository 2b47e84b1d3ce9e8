"""Measurements of the kernels on a GPU; run by scripts/gpu_check.py."""
