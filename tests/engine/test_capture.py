"""Hidden states that speculators get equal those of transformers, for ragged batches too."""

from __future__ import annotations

import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import EngineError
from specdec.model.capture import HiddenStateCapture

PROMPTS = [[3, 14, 15, 9, 2, 6, 5], [31], list(range(10, 30))]
BOUNDARIES = (2, 0, 3)


def reference_states(model, ids):
    """(states after the final norm, states at BOUNDARIES concatenated) of one sequence, each [T, ...]."""
    last_layer = []
    layers = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 3)
    hook = layers[-1].register_forward_hook(
        lambda module, args, out: last_layer.append(out[0] if isinstance(out, tuple) else out)
    )
    out = model.base_model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    hook.remove()
    boundary = {i: out.hidden_states[i] for i in range(3)} | {3: last_layer[0].view_as(out.hidden_states[0])}
    return out.last_hidden_state[0], torch.cat([boundary[b] for b in BOUNDARIES], -1)[0]


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2", "phi"])
def test_states_equal_those_of_transformers(kind, tiny, scripted):
    model = tiny(kind)
    speculator = scripted(
        lambda known, k: [known[-1], *known[-2:]][:k],
        capabilities={"uses_target_hidden_states": True, "uses_aux_hidden_states": True},
        wiring={"capture_before_layer": BOUNDARIES},
    )
    llm = LLM(model, speculator=speculator, max_num_seqs=3, max_model_len=64, max_num_batched_tokens=12)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=9))
    texts = [o.prompt_token_ids + o.outputs[0].token_ids for o in outputs]
    wanted = [reference_states(model, text) for text in texts]
    seen = [0] * len(texts)
    checked = 0
    for batch in speculator.batches:
        offsets = batch.row_offsets.tolist()
        assert len(batch.states.last) == len(batch.states.aux) == offsets[-1]
        for r in range(len(batch.slots)):
            kept = slice(offsets[r], offsets[r + 1] - int(batch.num_rejected[r]))
            positions, ids = batch.positions[kept], batch.token_ids[kept].tolist()
            owner = next(
                i
                for i, text in enumerate(texts)
                if [text[p] for p in positions.tolist() if p < len(text)] == ids and seen[i] == int(positions[0])
            )
            seen[owner] += len(ids)
            last, aux = wanted[owner]
            torch.testing.assert_close(batch.states.last[kept], last[positions], atol=2e-5, rtol=1e-4)
            torch.testing.assert_close(batch.states.aux[kept], aux[positions], atol=2e-5, rtol=1e-4)
            checked += len(ids)
    assert checked >= sum(len(p) for p in PROMPTS) + 3 * 5
    llm.engine.runner.capture.remove()


def test_states_are_not_captured_unless_asked_for(tiny, scripted):
    speculator = scripted(lambda known, k: [], wiring={"capture_before_layer": [1]})
    LLM(tiny("llama"), speculator=speculator, max_model_len=64).generate([1], SamplingParams(temperature=0.0))
    assert all(b.states is None for b in speculator.batches)


def test_a_boundary_outside_the_target_is_refused(tiny):
    with pytest.raises(EngineError, match=r"boundary 4 is outside 0\.\.3"):
        HiddenStateCapture(tiny("llama"), last=False, boundaries=(1, 4))
