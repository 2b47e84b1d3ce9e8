"""Files of hidden states against transformers' own, through the engine: chunks, batches, chains and short requests."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

import specdec
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import EngineError

PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [41], [9, 9, 9, 9, 9, 9, 9], list(range(1, 24))]
LAYERS = 2


@pytest.fixture
def engine(tiny_llama, tmp_path):
    """``engine(layout=..., chain=True, **sizes)`` writes below ``tmp_path / "states"``."""
    target, place = tiny_llama(0)

    def make(layout="speculators", aux_layers=None, chain=False, folder="states", **sizes):
        block = {"method": "extract_hidden_states", "output_dir": str(tmp_path / folder), "output_layout": layout}
        block |= {"aux_layers": aux_layers} if aux_layers is not None else {}
        lookup = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
        document = {
            "target": {"model": place, "max_model_len": 128},
            "speculative": [lookup, block] if chain else block,
        }
        config = specdec.resolve(document, target_config=target.config.to_dict()).unwrap()
        sizes = {"max_num_seqs": 4, "max_model_len": 128, "device": "cpu", "adaptive_drafting": False, **sizes}
        return LLM(target, config, **sizes)

    return make


def states_of(model, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """([S, L + 1, H] at the boundaries, the last one before the final norm; [S, H] after it), by transformers."""
    seen = []
    hook = model.model.layers[-1].register_forward_hook(lambda module, args, out: seen.append(out))
    with torch.inference_mode():
        held = model(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
    hook.remove()
    before_norm = seen[0][0] if isinstance(seen[0], tuple) else seen[0]
    return torch.stack([*held[:-1], before_norm], dim=2)[0], held[-1][0]


def check(folder, model, outputs, boundaries) -> None:
    for index, (prompt, output) in enumerate(zip(PROMPTS, outputs, strict=True)):
        held = load_file(folder / "hidden_states" / f"hs_{index}.safetensors")
        tokens = [*prompt, *output.outputs[0].token_ids][:-1]  # the newest was never consumed
        assert held["token_ids"].tolist() == tokens
        assert held["loss_mask"].tolist() == [0] * len(prompt) + [1] * (len(tokens) - len(prompt))
        want, normed = states_of(model, tokens)
        torch.testing.assert_close(held["hidden_states"], want[:, boundaries], atol=1e-4, rtol=1e-4)
        if boundaries[-1] == LAYERS:
            torch.testing.assert_close(model.model.norm(held["hidden_states"][:, -1]), normed, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "max_tokens"),
    [({}, 12), ({"max_num_seqs": 1}, 12), ({"max_num_batched_tokens": 5}, 12), ({"max_num_seqs": 2}, 1)],
    ids=["batch", "one-by-one", "chunks", "one-token"],
)
def test_rows_equal_transformers(engine, tiny_llama, tmp_path, sizes, max_tokens):
    llm = engine(**sizes)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=max_tokens))
    llm.close()
    check(tmp_path / "states", tiny_llama(0)[0], outputs, [0, 1, 2])
    manifest = json.loads((tmp_path / "states" / "manifest.json").read_text())
    assert manifest["boundaries"] == [0, 1, 2] and manifest["hidden_size"] == 32 and manifest["dtype"] == "float32"
    listed = [json.loads(line) for line in (tmp_path / "states" / "samples.jsonl").read_text().splitlines()]
    assert sorted(row["index"] for row in listed) == [0, 1, 2, 3]


def test_rejected_drafts_leave_no_rows(engine, tiny_llama, tmp_path):
    """In a chain another member drafts; accepted drafts behind a stop token are no tokens of the request either."""
    llm = engine(chain=True, aux_layers=[1, 2])
    plain = engine(folder="plain").generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=30))
    stops = [output.outputs[0].token_ids[17] for output in plain]
    params = [SamplingParams(temperature=0.0, max_tokens=30, stop_token_ids=[stop]) for stop in stops]
    outputs = llm.generate(PROMPTS, params)
    llm.close()
    counts = [output.outputs[0].speculation for output in outputs]
    assert sum(c.drafted for c in counts) > sum(c.verifier_accepted for c in counts) > 0
    check(tmp_path / "states", tiny_llama(0)[0], outputs, [1, 2])


def test_the_layout_with_the_normed_state(engine, tiny_llama, tmp_path):
    llm = engine(layout="specforge")
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=6))
    llm.close()
    for index, (prompt, output) in enumerate(zip(PROMPTS, outputs, strict=True)):
        held = torch.load(tmp_path / "states" / "rows_0-5000" / f"data_{index}.ckpt", weights_only=True)
        tokens = [*prompt, *output.outputs[0].token_ids][:-1]
        want, normed = states_of(tiny_llama(0)[0], tokens)
        assert held["input_ids"].tolist() == tokens
        torch.testing.assert_close(held["aux_hidden_state"][0], want[:, :LAYERS].flatten(1), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(held["hidden_state"][0], normed, atol=1e-4, rtol=1e-4)


def test_failed_and_aborted_requests_leave_nothing(engine, tmp_path):
    llm = engine()
    request = llm.engine.add(PROMPTS[0], SamplingParams(max_tokens=20))
    for _ in range(3):
        llm.engine.step()
    llm.engine.abort(request)
    outputs = llm.generate([[], PROMPTS[1]], SamplingParams(temperature=0.0, max_tokens=2))
    llm.close()
    assert outputs[0].error
    assert sorted(p.name for p in (tmp_path / "states" / "hidden_states").iterdir()) == ["hs_1.safetensors"]


def test_a_second_engine_goes_on_in_the_same_folder(engine, tmp_path):
    for _ in range(2):
        llm = engine()
        llm.generate(PROMPTS[:2], SamplingParams(temperature=0.0, max_tokens=2))
        llm.close()
    names = sorted(p.name for p in (tmp_path / "states" / "hidden_states").iterdir())
    assert names == [f"hs_{i}.safetensors" for i in range(4)]
    with pytest.raises(EngineError, match=r"manifest\.json.*boundaries is \[0, 1, 2\] there and \[2\] now"):
        engine(aux_layers=[2])


def test_states_that_are_not_finite_are_not_written(engine, tmp_path):
    llm = engine()
    observe = llm.speculator.observe

    def spoiled(step):
        step.states.aux[0, 0] = float("nan")
        observe(step)

    llm.speculator.observe = spoiled
    llm.generate(PROMPTS[:1], SamplingParams(temperature=0.0, max_tokens=2))
    llm.close()
    assert llm.speculator.failed == {0: "the target's hidden states are not finite"}
    assert not (tmp_path / "states" / "hidden_states").exists()
