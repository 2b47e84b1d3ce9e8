"""Lets the tests of this folder import its helpers (``block_*``), which pytest's import mode does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def states() -> torch.Tensor:
    """Target states [9, 2 * 32] of nine committed positions."""
    return torch.randn(9, 64, generator=torch.Generator().manual_seed(5))
