"""What a draft network consists of, for paths that run it without its modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class DraftParts:
    """Modules between a target's states and the logits of a draft; a network names them, nothing is read off names.

    A row's embedding e and feature g become what the layers read in one of three ways: e alone (neither ``join`` nor
    ``beside``); ``join`` of e and g (EAGLE-1, MTP); or the first layer attends with e beside g, 2H wide, while its
    residual is g (EAGLE-3).
    """

    embed: nn.Embedding
    layers: Sequence[nn.Module]
    rotary: nn.Module  # called with (x, positions [1, W]), gives cos and sin [1, W, head_dim]
    norm: nn.Module | None  # before the head; None = the head reads the residual stream
    head: nn.Linear
    fc: nn.Linear | None = None  # features of target states; None = the states are the features
    state_norms: Sequence[nn.Module] = ()  # of equal chunks of the states, before ``fc``
    embed_norm: nn.Module | None = None  # of e; in an EAGLE-3 layer its input norm
    feature_norm: nn.Module | None = None  # of g
    join: nn.Linear | None = None
    beside: bool = False
    feature_first: bool = False  # [g, e] instead of [e, g]
    normed_residual: bool = False  # the residual is g after its norm
    normed_feedback: bool = False  # what returns as a feature is what the head read
    first_empty: bool = False  # the embedding of the pair at position 0 counts as zero
    windows: Sequence[int] = ()  # positions that each layer sees, itself included; empty or 0 = all
    both_ways: Sequence[bool] = ()  # layers whose rows of one request see each other; empty = none
    context_norm: nn.Module | None = None  # of features that enter keys and values of a context, without the layers
    mask_feature: torch.Tensor | None = None  # [H] the feature of rows without a state
    blank_token: int = -1  # its embedding is ``blank`` [H]
    blank: torch.Tensor | None = None
    markov_embed: nn.Embedding | None = None  # of the draft before a row, whose logits ``markov`` of it is added to
    markov: nn.Linear | None = None
    confidence: nn.Linear | None = None  # one score of what the head reads, that the row's draft is accepted
    confidence_reads_token: bool = False  # and of ``markov_embed`` behind it
    temperatures: torch.Tensor | None = None  # [K] of those scores
    walks: bool = (
        True  # a block's drafts are the best of its logits, plus ``markov``; otherwise only its states are native
    )
