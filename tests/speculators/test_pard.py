"""One-pass drafts against a direct forward over committed tokens and mask tokens."""

from __future__ import annotations

import pytest
import torch

from specdec.speculators.pard import PardSpeculator

CPU, MASK = torch.device("cpu"), 59


def speculator_for(k, make_config, tiny_llama, target_handle, **options):
    config = make_config(k, options, draft={"model": tiny_llama(5)[1], "mask_token_id": MASK})
    speculator = PardSpeculator(config, CPU)
    speculator.load(target_handle(tiny_llama(0)[0]))
    return speculator


def direct(model, tokens: list[int], k: int) -> list[int]:
    with torch.inference_mode():
        logits = model(torch.tensor([tokens + [MASK] * (k - 1)])).logits[0]
    return logits[len(tokens) - 1 :].argmax(-1).tolist()


@pytest.mark.parametrize("k", [1, 2, 5])
def test_every_round_equals_a_direct_forward(k, make_config, tiny_llama, target_handle, run_greedy) -> None:
    draft = tiny_llama(5)[0]
    forwards = 0

    def target(prefix: list[int]) -> int:
        # agrees with the first drafts now and then, so that rounds end at different places
        return direct(draft, prefix, 1)[0] if len(prefix) % 4 else 7

    def check(running) -> None:
        nonlocal forwards
        for request in running:
            if len(request.output) + request.k < request.max_tokens:
                assert request.drafts == direct(draft, request.tokens, request.k)
                forwards += 1

    speculator = speculator_for(k, make_config, tiny_llama, target_handle)
    prompts = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [4], [9, 9]]
    requests = run_greedy(speculator, target, prompts, max_tokens=25, k=[k, k, max(1, k - 1)], after_step=check)
    assert forwards > 20
    assert any(a for r in requests for _, a in r.rounds)


def test_one_forward_a_round(tell, make_config, tiny_llama, target_handle, make_batch, make_request) -> None:
    speculator = speculator_for(4, make_config, tiny_llama, target_handle)
    speculator.start(0, torch.tensor([1, 2, 3]))
    calls, forward = [], speculator.draft._forward
    speculator.draft._forward = lambda *args: calls.append(args) or forward(*args)
    tell(speculator, make_batch([make_request(0, [1, 2, 3], 9, 4, 3)], [[1, 2, 3]], [0], [8]))
    assert len(calls) == 1
    assert speculator.draft.sequences[0].num_computed == 4  # mask tokens do not count


def test_probabilistic_rows_are_kept(tell, make_config, tiny_llama, target_handle, make_batch, make_request) -> None:
    speculator = speculator_for(3, make_config, tiny_llama, target_handle, draft_sample_method="probabilistic")
    speculator.start(0, torch.tensor([1, 2, 3]))
    request = make_request(0, [1, 2, 3], 9, 3, 3, temperature=1.0, seed=4)
    drafts = tell(speculator, make_batch([request], [[1, 2, 3]], [0], [8]))
    with torch.inference_mode():
        want = tiny_llama(5)[0](torch.tensor([[1, 2, 3, 8, MASK, MASK]])).logits[0, 3:]
    torch.testing.assert_close(drafts.logits[0], want, atol=1e-4, rtol=1e-4)


def test_a_draft_without_a_mask_token_is_refused(make_config) -> None:
    with pytest.raises(ValueError, match="names no mask token"):
        PardSpeculator(make_config(3), CPU)
