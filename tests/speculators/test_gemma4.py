"""The Gemma 4 assistant in the engine: greedy equality with transformers, and every round against a recomputation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drafting_engines import check_greedy, check_sampled, engine, watch


def block(assistant: Any, k: int = 3, **options: Any) -> dict[str, Any]:
    return {"method": "gemma4", "model": str(assistant.path), "num_speculative_tokens": k, **options}


def recomputed(llm: Any, draft: Any, text: list[int], k: int, ahead: int) -> list[int]:
    """k drafts behind ``text`` from keys and values that transformers computes for it."""
    from transformers import DynamicCache

    cache, length = DynamicCache(), len(text) - 1
    with torch.inference_mode():
        out = llm.target.model.base_model(torch.tensor([text[:-1]]), past_key_values=cache)
        state, token = out.last_hidden_state[:, -1:], text[-1]
        held = {kind: (cache.layers[i].keys, cache.layers[i].values) for kind, i in draft.kv_layers.items()}
        at, seen = length - 1 + ahead, torch.ones(1, 1, 1, length, dtype=torch.bool)
        masks = {"full_attention": seen, "sliding_attention": seen & (at - torch.arange(length) < 6)}
        drafts = []
        for _ in range(k):
            x = draft.inputs(torch.tensor([[token]]), state, torch.zeros(1, 1, dtype=torch.bool))
            hidden = draft(x, torch.tensor([[at]]), masks, held)[0]
            token, state = int(draft.logits(hidden).argmax()), draft.feedback(hidden)[None]
            drafts.append(token)
    return drafts


@pytest.mark.parametrize(
    ("shared", "ordered", "position"),
    [(0, False, "last_cached"), (2, True, "last_cached"), (2, False, "next_token")],
)
@pytest.mark.parametrize("batched", [2048, 5], ids=["whole_prompts", "chunked_prompts"])
def test_greedy_output_is_that_of_transformers(gemma4_target, gemma4_assistant, shared, ordered, position, batched):
    target, assistant = gemma4_target(shared), gemma4_assistant(ordered)
    llm = engine(target, block(assistant, query_position=position), batched)
    watched = watch(llm)
    check_greedy(llm, target)
    assert len(watched.rounds) > 30
    for text, row in watched.rounds:
        drafts = recomputed(llm, watched.inner.network, text, len(row), int(position == "next_token"))
        assert row == drafts


def test_the_query_position_changes_drafts_only(gemma4_target, gemma4_assistant):
    rounds = []
    for position in ("last_cached", "next_token"):
        llm = engine(gemma4_target(2), block(gemma4_assistant(False), query_position=position))
        watched = watch(llm)
        check_greedy(llm, gemma4_target(2))
        rounds.append([row for _, row in watched.rounds])
    assert rounds[0] != rounds[1]


def test_the_targets_keys_and_values_are_left_as_they_are(gemma4_target, gemma4_assistant):
    target = gemma4_target(0)
    llm = engine(target, block(gemma4_assistant(False)))
    inner = llm.engine.runner.speculator
    propose, unchanged = inner.propose, []

    def spy(step: Any) -> Any:
        before = [(layer.keys.clone(), layer.values.clone()) for layer in llm.engine.runner.cache.layers]
        drafts = propose(step)
        after = [(layer.keys, layer.values) for layer in llm.engine.runner.cache.layers]
        unchanged.append(
            all(torch.equal(a, b) for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True))
        )
        return drafts

    inner.propose = spy
    check_greedy(llm, target)
    assert len(unchanged) > 10 and all(unchanged)


@pytest.mark.parametrize("ordered", [False, True], ids=["full_head", "ordered_head"])
def test_sampled_texts_follow_the_targets_law(gemma4_target, gemma4_assistant, ordered):
    options = {"draft_sample_method": "probabilistic"}
    check_sampled(engine(gemma4_target(0, adds_nothing=True), block(gemma4_assistant(ordered), **options), seqs=32))
