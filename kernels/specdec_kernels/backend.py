"""Which implementation of an operation runs."""

from __future__ import annotations

import os

import torch

BACKENDS = ("auto", "torch", "triton")


def use_triton(tensor: torch.Tensor, backend: str = "auto") -> bool:
    """True for the Triton kernel. "auto" takes it on CUDA devices; "torch" and "triton" insist.

    Raises ValueError for an unknown name, and for "triton" where no kernel can run: a CPU tensor without Triton's
    interpreter (environment TRITON_INTERPRET=1, set before the first import of triton).
    """
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; choose one of {', '.join(BACKENDS)}")
    if backend == "triton" and not tensor.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError("backend 'triton' needs CUDA tensors (or TRITON_INTERPRET=1); use backend 'torch' on a CPU")
    return backend == "triton" or (backend == "auto" and tensor.is_cuda)
