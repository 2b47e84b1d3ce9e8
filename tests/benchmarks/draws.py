"""The law of the first three sampled tokens, end to end, against exact enumeration of a tiny target.

``python tests/benchmarks/draws.py [SAMPLES] [NAME ...]`` runs every speculator under every mode of verification (100 000
samples each without an argument) and prints p-values of chi-square tests; docs/lossless.md records a run. The first token
has no draft, the second and third are drafted; requests run on to five tokens, so that drafts reach beyond what is counted.
Seeds are those that the engine derives from its own, which are neighbours by number, in batches of 256.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import specdec
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams

V, LENGTH, MAX_TOKENS, TEMPERATURE, BATCH, CHUNK = 4, 3, 5, 0.9, 256, 2048
PROMPT = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
PARAMS = SamplingParams(temperature=TEMPERATURE, max_tokens=MAX_TOKENS, ignore_eos=True)
Tokens = tuple[int, ...]


def tiny_llama(folder: Path, seed: int) -> Any:
    """A random llama over V tokens, saved to ``folder``; its laws are neither flat nor sharp."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=V, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, initializer_range=0.5, tie_word_embeddings=False,
        eos_token_id=None, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(0.6)
    model.save_pretrained(folder)
    return model


def exact_law(model: Any) -> dict[Tokens, float]:
    """The probability of every continuation of the prompt by LENGTH tokens, in float64, by enumeration."""
    model, law = model.double(), {}
    with torch.inference_mode():
        for tokens in itertools.product(range(V), repeat=LENGTH):
            logits = model(torch.tensor([PROMPT + list(tokens)])).logits[0, len(PROMPT) - 1 : -1]
            rows = torch.softmax(logits / TEMPERATURE, -1)
            law[tokens] = float(rows[range(LENGTH), list(tokens)].prod())
    model.float()
    return law


def blocks(draft: Path) -> dict[str, Any]:
    """Name -> ``speculative:`` block (None = plain sampling)."""
    lookup = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    suffix = {"method": "suffix", "num_speculative_tokens": 3, "suffix_decoding_min_token_prob": 0.0}
    greedy = {"method": "draft_model", "num_speculative_tokens": 3, "model": str(draft)}
    drawn = {**greedy, "draft_sample_method": "probabilistic"}
    drafts = {"ngram": lookup, "suffix": suffix, "draft greedy": greedy, "draft probabilistic": drawn}
    found: dict[str, Any] = {"plain": None}
    for mode in ("standard", "block", "coupled"):
        for name, block in drafts.items():
            found[f"{name}, {mode}"] = {**block, "rejection_sample_method": mode}
        found[f"chain, {mode}"] = [
            {**lookup, "rejection_sample_method": mode},
            {**drawn, "rejection_sample_method": mode},
        ]
    return found


def sample(model: Any, block: Any, count: int, seed: int = 0) -> tuple[list[Tokens], float | None]:
    """(the first tokens of ``count`` requests in order of their seeds, share of accepted drafts)."""
    config = None
    if block is not None:
        document = {"target": {"model": "./target", "max_model_len": 32}, "speculative": block}
        document["engine"] = {"max_num_seqs": BATCH, "max_num_batched_tokens": 4096, "seed": seed}
        config = specdec.resolve(document, target_config=model.config.to_dict()).unwrap()
    settings = {"max_model_len": 32, "max_num_seqs": BATCH, "max_num_batched_tokens": 4096, "seed": seed}
    llm = LLM(model, config, device="cpu", adaptive_drafting=False, **({} if config else settings))
    found: list[Tokens] = []
    while len(found) < count:
        for output in llm.generate([PROMPT] * min(CHUNK, count - len(found)), PARAMS):
            assert output.error is None, output.error
            found.append(tuple(output.outputs[0].token_ids[:LENGTH]))
    llm.close()
    return found, llm.engine.metrics.pooled.acceptance_rate


def p_value(counts: Counter[Any], law: dict[Any, float], total: int) -> float:
    """Of Pearson's chi-square test; cells that expect fewer than five are pooled."""
    rare = [key for key, p in law.items() if p * total < 5]
    cells = [(counts[key], p * total) for key, p in law.items() if p * total >= 5]
    if rare:
        cells.append((sum(counts[key] for key in rare), sum(law[key] for key in rare) * total))
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells if expected)
    half = torch.tensor([(len(cells) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def tests_of(found: list[Tokens], law: dict[Tokens, float], pairs: bool) -> Iterator[tuple[str, float]]:
    """(what is tested, p-value): the law of the tokens, and with ``pairs`` the independence of neighbours in a batch."""
    yield "law", p_value(Counter(found), law, len(found))
    if not pairs:
        return
    ends = {t: sum(p for tokens, p in law.items() if tokens[:2] == t) for t in itertools.product(range(V), repeat=2)}
    joint = {(a, b): pa * pb for (a, pa), (b, pb) in itertools.product(ends.items(), repeat=2)}
    for distance in (1, 2, 128):  # requests apart: each once, so that the pairs are independent of each other
        starts = [i for i in range(len(found) - distance) if i // distance % 2 == 0]
        seen = Counter((found[i][:2], found[i + distance][:2]) for i in starts)
        yield f"independent, {distance} apart", p_value(seen, joint, len(starts))


def main(count: int, names: list[str]) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        target, draft = tiny_llama(Path(folder) / "target", 1), Path(folder) / "draft"
        tiny_llama(draft, 2)
        law, all_p = exact_law(target), []
        for name, block in blocks(draft).items():
            if names and name not in names:
                continue
            start = time.monotonic()
            found, rate = sample(target, block, count)
            accepted = "" if rate is None else f", {rate:.2f} of the drafts accepted"
            for what, p in tests_of(found, law, pairs=block is None):
                all_p.append(p)
                print(
                    f"{name}: {what}: p = {p:.3g} ({count} samples{accepted}, {time.monotonic() - start:.0f} s)",
                    flush=True,
                )
        print(f"{len(all_p)} tests, smallest p {min(all_p):.3g}: times {len(all_p)} is {min(all_p) * len(all_p):.3g}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, sys.argv[2:])
