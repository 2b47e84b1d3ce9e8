"""Engines of tests whose drafts are written down, and what they should have said."""

from __future__ import annotations

import math
from typing import Any

import torch

from specdec import resolve
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.speculators.base import BaseSpeculator, Drafts, Step
from specdec.speculators.history import committed

PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [41], [9, 9, 9, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]]
LENGTHS = (24, 9, 17, 12)
CLASSES = 3
DF = CLASSES * (CLASSES - 1)
BOUND = DF * (1 - 2 / (9 * DF) + 3.72 * math.sqrt(2 / (9 * DF))) ** 3  # quantile of chi-square at 1e-4


class Watched(BaseSpeculator):
    """A speculator whose rounds are written down: the text that was known, and what was drafted for it."""

    def __init__(self, inner: BaseSpeculator) -> None:
        self.inner, self.num_speculative_tokens = inner, inner.num_speculative_tokens
        self.texts: dict[int, list[int]] = {}
        self.rounds: list[tuple[list[int], list[int]]] = []

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        self.texts[slot] = prompt_token_ids.tolist()
        self.inner.start(slot, prompt_token_ids)

    def observe(self, step: Step) -> None:
        for settled in committed(step):
            self.texts[settled.slot][settled.start : settled.start + len(settled.tokens)] = settled.tokens
        self.inner.observe(step)

    def propose(self, step: Step) -> Drafts:
        drafts = self.inner.propose(step)
        self.rounds += [(list(self.texts[s]), row) for s, row in zip(step.host("slots"), drafts.rows(), strict=True)]
        return drafts

    def finish(self, slot: int) -> None:
        self.inner.finish(slot)


def engine(target: Any, block: dict[str, Any], batched: int = 2048, seqs: int = 3) -> LLM:
    """An engine that always drafts; ``batched`` = tokens of one prefill forward."""
    sizes = {"max_num_seqs": seqs, "max_num_batched_tokens": batched, "device": "cpu"}
    document = {"target": {"model": str(target.path)}, "speculative": block, "engine": sizes}
    return LLM(None, resolve(document), max_model_len=96, adaptive_drafting=False)


def watch(llm: LLM) -> Watched:
    llm.engine.runner.speculator = watched = Watched(llm.engine.runner.speculator)
    return watched


def plain(target: Any, prompt: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    out = target.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, pad_token_id=0
    )
    return out[0, len(prompt) :].tolist()


def check_greedy(llm: LLM, target: Any) -> None:
    """Unequal requests: the output is that of transformers."""
    outputs = llm.generate(PROMPTS, [SamplingParams(temperature=0.0, max_tokens=n) for n in LENGTHS])
    for prompt, count, output in zip(PROMPTS, LENGTHS, outputs, strict=True):
        assert output.error is None
        assert output.outputs[0].token_ids == plain(target, prompt, count)


def check_sampled(llm: LLM, requests: int = 48, length: int = 40, temperature: float = 0.8) -> None:
    """A target whose layers add nothing: transitions of sampled texts, in classes of tokens, follow its law.

    A law that is off by a total variation of 0.12 in every row is found out.
    """
    model, vocab = llm.target.model, llm.target.vocab_size
    with torch.inference_mode():
        law = torch.softmax(model(torch.arange(vocab)[:, None]).logits[:, 0].double() / temperature, -1)
    of_class = torch.nn.functional.one_hot(torch.arange(vocab) % CLASSES).double()
    params = [SamplingParams(temperature=temperature, max_tokens=length, seed=seed) for seed in range(requests)]
    outputs = llm.generate([[seed % vocab] for seed in range(requests)], params)
    counts = torch.zeros(vocab, vocab, dtype=torch.float64)
    for output in outputs:
        text = torch.tensor(output.outputs[0].token_ids)
        counts.index_put_((text[:-1], text[1:]), torch.ones(len(text) - 1, dtype=torch.float64), accumulate=True)
    seen = of_class.T @ counts @ of_class

    def statistic(law: torch.Tensor) -> float:
        expected = of_class.T @ (counts.sum(1, keepdim=True) * (law @ of_class))
        return float(((seen - expected) ** 2 / expected).sum())

    wrong = law * 0.88
    wrong[:, 0] += 0.12
    assert statistic(law) < BOUND < statistic(wrong), (statistic(law), BOUND, statistic(wrong))
