"""What the tests of block drafts share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def states() -> torch.Tensor:
    """Target states [9, 2 * 32] of nine committed positions."""
    return torch.randn(9, 64, generator=torch.Generator().manual_seed(5))
