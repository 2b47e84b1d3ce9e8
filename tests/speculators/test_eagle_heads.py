"""EAGLE, EAGLE-3 and P-EAGLE heads through the engine: greedy equality, laws, batches, chunks and ends."""

from __future__ import annotations

import functools
from typing import Any

import eagle_heads as heads
import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.policy.controller import DraftController
from specdec.engine.sampling.sampling_params import SamplingParams

PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [41], [9] * 7, list(range(1, 15))]
HEAD = {**heads.COMMON, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": heads.REDUCED}
METHODS = ["eagle", "eagle3", "eagle3 two layers", "eagle3 last state", "peagle"]
LOOKUP = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    model, path = heads.target_model(), str(tmp_path_factory.mktemp("target"))
    model.save_pretrained(path)
    return model, path


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The ``speculative:`` block of a method whose head is random."""

    @functools.cache
    def path(name: str) -> str:
        folder = tmp_path_factory.mktemp("head")
        if name == "eagle":
            return heads.write(folder, heads.COMMON, heads.eagle1_tensors(bias=True))
        layers = 2 if name in ("eagle3 two layers", "peagle") else 1
        tensors, config = heads.eagle3_tensors(layers=layers), {**HEAD, "num_hidden_layers": layers}
        if name == "eagle3 last state":
            del tensors["fc.weight"]
            config["eagle_config"] = {"use_aux_hidden_state": False}
        elif name == "peagle":
            tensors["mask_hidden"] = torch.randn(1, 1, 3 * heads.HIDDEN)
            config |= {"architectures": ["PEagleDraftModel"], "ptd_token_id": 60}
        return heads.write(folder, config, heads.midlayer(tensors))

    def make(name: str, k: int, **options: Any) -> dict[str, Any]:
        return {"method": name.split()[0], "model": path(name), "num_speculative_tokens": k, **options}

    return make


@pytest.fixture(scope="module")
def engine(target: tuple[Any, str]) -> Any:
    def make(speculative: Any, seqs: int = 4, **parts: Any) -> LLM:
        config = None
        if speculative is not None:
            from specdec import resolve

            document = {
                "target": {"model": target[1], "max_model_len": 128},
                "speculative": speculative,
                "engine": {"max_num_seqs": seqs},
            }
            config = resolve(document).unwrap()
        return LLM(target[0], config, max_model_len=128, max_num_seqs=seqs, device="cpu", **parts)

    return make


@pytest.fixture(scope="module")
def greedy(target: tuple[Any, str]) -> Any:
    @functools.cache
    def of(prompt: tuple[int, ...], count: int, eos: int | None = None) -> list[int]:
        ids = torch.tensor([prompt])
        options = {"do_sample": False, "max_new_tokens": count, "pad_token_id": 0, "eos_token_id": eos}
        return target[0].generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist()

    return of


def tokens(outputs: Any) -> list[list[int]]:
    assert all(o.error is None for o in outputs), [o.error for o in outputs]
    return [o.outputs[0].token_ids for o in outputs]


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("name", METHODS)
def test_greedy_equals_transformers(name: str, k: int, engine: Any, block: Any, greedy: Any) -> None:
    """Unequal prompts and ends, one request more than there are slots."""
    llm, limits = engine(block(name, k), adaptive_drafting=False), (40, 17, 30, 8, 21)
    prompts = [*PROMPTS, [3, 1, 4, 1, 5]]
    outputs = llm.generate(prompts, [SamplingParams(temperature=0.0, max_tokens=n) for n in limits])
    assert tokens(outputs) == [greedy(tuple(p), n) for p, n in zip(prompts, limits, strict=True)]
    assert sum(o.outputs[0].speculation.drafted for o in outputs) > 20


@pytest.mark.parametrize("name", ["eagle", "eagle3", "peagle"])
def test_prompts_in_chunks_change_nothing(name: str, engine: Any, block: Any, greedy: Any) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=20)
    for size in (4, 11):
        llm = engine(block(name, 3), adaptive_drafting=False, max_num_batched_tokens=size)
        assert tokens(llm.generate(PROMPTS, params)) == [greedy(tuple(p), 20) for p in PROMPTS]


@pytest.mark.parametrize("name", ["eagle", "eagle3", "peagle"])
def test_an_end_inside_the_drafts(name: str, engine: Any, block: Any, greedy: Any) -> None:
    """The head's drafts are accepted whatever they are, so stop tokens fall at every place of a round."""
    loose = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [1.0, 1.0, 1.0, 1.0]}
    llm = engine(block(name, 4, **loose), adaptive_drafting=False)
    free = tokens(llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=14)))
    for at in range(1, 7):
        params = [SamplingParams(temperature=0.0, max_tokens=14, stop_token_ids=[text[at]]) for text in free]
        for text, whole in zip(tokens(llm.generate(PROMPTS, params)), free, strict=True):
            assert text == whole[: whole.index(whole[at]) + 1]
    exact = engine(block(name, 4), adaptive_drafting=False)
    for prompt in PROMPTS:
        stop = greedy(tuple(prompt), 20)[9]
        params = SamplingParams(temperature=0.0, max_tokens=20, stop_token_ids=[stop])
        assert tokens(exact.generate([prompt], params)) == [greedy(tuple(prompt), 20, stop)]


@pytest.mark.parametrize("path", ["kernels", "torch"])
@pytest.mark.parametrize("name", ["eagle", "eagle3", "eagle3 two layers", "peagle"])
def test_every_round_drafts_what_a_recomputation_drafts(
    name: str, path: str, engine: Any, block: Any, target: Any, monkeypatch: Any
) -> None:
    """Rejections at every index, k = 0 rounds and other numbers of drafts in between: rows come from true states only."""
    rates = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.8, 0.6, 0.4]}
    llm = engine(block(name, 3, **rates), adaptive_drafting=False)
    speculator, texts, compared = llm.engine.runner.speculator, {}, []
    if path == "torch":
        speculator.lane.native = None

    def start(slot: int, prompt: Any) -> None:
        texts[slot] = []
        type(speculator).start(speculator, slot, prompt)

    def observe(step: Any) -> None:
        offsets, following = step.host("row_offsets"), step.host("next_token")
        for r, slot in enumerate(step.host("slots")):
            kept = step.host("token_ids")[offsets[r] : offsets[r + 1] - step.host("num_rejected")[r]]
            texts[slot] = [*texts[slot][:-1], *kept, following[r]]
        type(speculator).observe(speculator, step)

    def propose(step: Any) -> Any:
        drafts = type(speculator).propose(speculator, step)
        for r, slot in enumerate(step.host("slots")):
            row = drafts.rows()[r]
            compared.append((list(texts[slot]), row))
        return drafts

    for name_of, spy in (("start", start), ("observe", observe), ("propose", propose)):
        monkeypatch.setattr(speculator, name_of, spy)
    counts = (3, 1, 2, None)
    params = [SamplingParams(temperature=0.0, max_tokens=25, num_speculative_tokens=n) for n in counts]
    tokens(llm.generate(PROMPTS, params))
    assert len(compared) > 30 and {len(row) for _, row in compared} == {1, 2, 3}
    network = speculator.lane.network
    for text, row in compared:
        assert row == recomputed(network, target[0], text, len(row), name), (len(text), row)


@torch.no_grad()
def recomputed(network: Any, model: Any, text: list[int], k: int, name: str) -> list[int]:
    """Drafts after a text whose last token the target has not seen, from the target's states of the whole text."""
    seen = model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
    states = seen[-1][0] if name == "eagle" else torch.cat([seen[i][0] for i in heads.BOUNDARIES], -1)
    if name != "peagle":
        return heads.chain(network, text[1:], states, k)[0]
    features = torch.cat((network.features(states), network.placeholder().expand(k - 1, -1)))
    ids = torch.tensor([[*text[1:], *[network.mask_token_id] * (k - 1)]])
    positions = torch.arange(ids.shape[1])[None]
    hidden = network(network.inputs(ids, features[None], positions == 0), positions, None, None)[0, -k:]
    return network.to_target[network.logits(hidden).argmax(-1)].tolist()


class Changing(DraftController):
    """Another number of drafts for every request and round, none now and then, whatever they are worth."""

    rounds = 0

    def choose(self, request: Any, batch_size: int = 1, most: int | None = None) -> int:
        self.rounds += 1
        return min((0, 2, 3, 0, 0, 1)[self.rounds % 6], self.max_drafts if most is None else most)

    def trim(self, requests: Any) -> None:
        pass


@pytest.mark.parametrize("name", ["eagle", "eagle3", "peagle"])
def test_rounds_without_drafts(name: str, engine: Any, block: Any, greedy: Any) -> None:
    """Numbers of drafts change between rounds, and one request wants none at all: pairs wait and the text stays."""
    params = [SamplingParams(temperature=0.0, max_tokens=30, num_speculative_tokens=n) for n in (0, 1, None, 2)]
    outputs = engine(block(name, 3), controller=Changing(3)).generate(PROMPTS, params)
    assert tokens(outputs) == [greedy(tuple(p), 30) for p in PROMPTS]
    assert outputs[0].outputs[0].speculation.drafted == 0 < outputs[2].outputs[0].speculation.drafted < 60


MODES = {
    "block": {"rejection_sample_method": "block"},
    "probabilistic": {"draft_sample_method": "probabilistic"},
    "probabilistic block": {"draft_sample_method": "probabilistic", "rejection_sample_method": "block"},
    "coupled": {"rejection_sample_method": "coupled"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["eagle", "eagle3", "peagle"])
def test_modes_keep_greedy_text_and_seeds(name: str, mode: str, engine: Any, block: Any, greedy: Any) -> None:
    llm = engine(block(name, 3, **MODES[mode]), adaptive_drafting=False)
    same = SamplingParams(temperature=0.0, max_tokens=20)
    assert tokens(llm.generate(PROMPTS, same)) == [greedy(tuple(p), 20) for p in PROMPTS]
    params = [SamplingParams(temperature=t, seed=s, max_tokens=15) for t, s in ((1.0, 7), (0.6, 8), (0.0, 9), (1.3, 7))]
    together = tokens(llm.generate(PROMPTS, params))
    assert together == [tokens(llm.generate([p], [sp]))[0] for p, sp in zip(PROMPTS, params, strict=True)]
    if mode == "coupled":
        assert together == tokens(engine(None).generate(PROMPTS, params))


@pytest.mark.parametrize("chained", ["eagle3", "eagle"])
def test_a_chain_with_lookup(chained: str, engine: Any, block: Any, greedy: Any) -> None:
    """Where the lookup finds nothing the head drafts, and its pairs are complete although others drafted before."""
    members = [{**LOOKUP, "num_speculative_tokens": 3}, block(chained, 3)]
    outputs = engine(members, adaptive_drafting=False).generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=40))
    assert tokens(outputs) == [greedy(tuple(p), 40) for p in PROMPTS]
    assert sum(o.outputs[0].speculation.drafted for o in outputs) > 60


@pytest.mark.parametrize("name", ["eagle", "eagle3", "peagle"])
def test_drawn_drafts_leave_the_target_s_law(name: str, engine: Any, block: Any, target: Any) -> None:
    """Pairs of tokens after one prompt against the exact law: one off by a total variation of 0.15 would show (fixed seeds)."""
    prompt, count, temperature = [7, 3, 9], 600, 0.25
    with torch.no_grad():
        first = (target[0](torch.tensor([prompt])).logits[0, -1] / temperature).softmax(-1)
        likely = first.topk(6).indices
        behind = target[0](torch.tensor([[*prompt, int(t)] for t in likely])).logits[:, -1] / temperature
    joint = (first[likely, None] * behind.softmax(-1)).double()
    llm = engine(block(name, 2, draft_sample_method="probabilistic"), seqs=100, adaptive_drafting=False)
    params = [SamplingParams(temperature=temperature, seed=i, max_tokens=2) for i in range(count)]
    texts = tokens(llm.generate([prompt] * count, params))
    seen = torch.zeros_like(joint)
    for text in texts:
        if text[0] in likely.tolist():
            seen[likely.tolist().index(text[0]), text[1]] += 1
    bins = joint * count >= 8
    observed = torch.cat((seen[bins], (count - seen[bins].sum())[None]))
    expected = torch.cat((joint[bins] * count, (count - joint[bins].sum() * count)[None]))
    degrees = len(expected) - 1
    bound = degrees * (1 - 2 / (9 * degrees) + 3.72 * (2 / (9 * degrees)) ** 0.5) ** 3  # quantile at 1e-4
    assert degrees > 5 and float(((observed - expected) ** 2 / expected).sum()) < bound
