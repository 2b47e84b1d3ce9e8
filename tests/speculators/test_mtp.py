"""MTP modules in the engine: greedy equality with transformers, and every round against a recomputation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drafting_engines import check_greedy, check_sampled, engine, watch


def recomputed(llm: Any, draft: Any, text: list[int], k: int) -> list[int]:
    """k drafts behind ``text``, everything computed again from the true text."""
    with torch.inference_mode():
        states = llm.target.model.base_model(torch.tensor([text[:-1]])).last_hidden_state
        known, features = list(text), states
        windows = draft.num_layers > 1  # several modules: every step reads all positions again
        for step in range(k):
            ids = known[1 + step : len(text) + step] if windows else known[1:]
            positions = torch.arange(len(ids))[None]
            x = draft.inputs(torch.tensor([ids]), features, positions == 0, step)
            hidden = draft(x, positions, None, None, step)
            known.append(int(draft.logits(hidden[0, -1:], step).argmax()))
            fed = draft.feedback(hidden, step)
            features = fed if windows else torch.cat([features, fed[:, -1:]], dim=1)
    return known[len(text) :]


CASES = [
    ("deepseek_v3", 1, 3),
    ("glm4_moe", 1, 3),
    ("mimo", 1, 2),
    ("glm4_moe_lite", 1, 1),
    ("glm4_moe", 2, 2),
    ("deepseek_v3", 2, 4),
    ("qwen3_next", 1, 3),  # recurrent layers go back to the last accepted token
    ("qwen3_5_text", 1, 2),
]


CHUNKED = [("deepseek_v3", 1, 3), ("glm4_moe", 2, 2), ("qwen3_next", 1, 3)]


@pytest.mark.parametrize(
    ("family", "modules", "k", "batched"), [(*case, 2048) for case in CASES] + [(*case, 5) for case in CHUNKED]
)
def test_greedy_output_is_that_of_transformers_and_rounds_are_recomputed(mtp_target, family, modules, k, batched):
    target = mtp_target(family, modules)
    llm = engine(target, {"method": "mtp", "num_speculative_tokens": k}, batched)
    watched = watch(llm)
    check_greedy(llm, target)
    draft = watched.inner.lane.network
    assert len(watched.rounds) > 30 and {len(row) for _, row in watched.rounds} >= {k}
    for text, row in watched.rounds[:: max(1, len(watched.rounds) // 12)]:
        assert row == recomputed(llm, draft, text, len(row))


@pytest.mark.parametrize("verification", ["standard", "block"])
@pytest.mark.parametrize(("modules", "k"), [(1, 3), (2, 2)])
def test_sampled_texts_follow_the_targets_law(mtp_target, modules, k, verification):
    block = {"method": "mtp", "num_speculative_tokens": k, "draft_sample_method": "probabilistic"}
    target = mtp_target("glm4_moe", modules, adds_nothing=True)
    check_sampled(engine(target, {**block, "rejection_sample_method": verification}, seqs=32))
