"""Modes are interleaved per prompt, disturbed samples are taken again, and both engines can be measured."""

from __future__ import annotations

import io

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec.bench import session
from specdec.bench.ours import EngineMode
from specdec.bench.peers import TransformersMode
from specdec.bench.progress import Progress
from specdec.bench.samples import BenchPrompt, Sample
from specdec.bench.session import Plan, count, measure, measure_batches
from specdec.engine.llm import LLM

PROMPTS = [BenchPrompt(name, name, (1, 2, 3, 4, 5, 2, 3)) for name in "abc"]


class FakeMode:
    num_drafts = None

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def generate(self, token_ids, temperature, seed, max_tokens):
        self.log.append(f"{self.name}{max_tokens}")
        return Sample([0] * max_tokens, 0.1, max_tokens)


def test_every_mode_runs_a_prompt_before_the_next_prompt():
    log: list[str] = []
    modes = [FakeMode("x", log), FakeMode("y", log)]
    plan = Plan(temperatures=(0.0,), max_tokens=16, repeats=2, tries=1)
    samples = measure(modes, PROMPTS, plan)
    assert log[:2] == ["x8", "y8"]
    assert log[2:8] == ["x16", "y16", "y16", "x16", "x16", "y16"]
    assert len(samples) == count(modes, PROMPTS, plan) == 12
    assert [s.prompt for s in samples[:4]] == ["a", "a", "b", "b"] and samples[-1].repeat == 1


def test_a_disturbed_sample_is_taken_again(monkeypatch):
    verdicts = iter([True, True, False] + [True] * 100)
    monkeypatch.setattr(session.CpuWatch, "disturbed", lambda self: next(verdicts))
    log: list[str] = []
    samples = measure([FakeMode("x", log)], PROMPTS[:2], Plan(temperatures=(0.0,), max_tokens=4, tries=3))
    assert log == ["x8"] + ["x4"] * 6
    assert [s.disturbed for s in samples] == [False, True]


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def test_engines_agree_on_greedy_text_and_count_their_forwards():
    model = tiny()
    ours = EngineMode("plain", LLM(model, max_model_len=64), None)
    peers = [TransformersMode(model), TransformersMode(model, 3)]
    plan = Plan(temperatures=(0.0,), max_tokens=12, tries=1)
    samples = measure([ours, *peers], PROMPTS[:1], plan)
    assert samples[0].token_ids == samples[1].token_ids == samples[2].token_ids
    assert [s.forwards for s in samples[:2]] == [12, 12] and samples[2].forwards <= 12
    assert 0.0 <= samples[0].overhead < 1.0 and samples[1].overhead is None
    (batch,) = measure_batches([ours], PROMPTS, [3], plan)
    assert batch.batch == 3 and batch.tokens_per_second > 0


def test_progress_without_a_terminal_prints_lines_not_bars():
    stream = io.StringIO()
    progress = Progress(1, stream)
    sample = Sample([0] * 10, 0.5, 5, [4], [2], mode="x", kind="story")
    progress.step(sample)
    progress.close()
    assert stream.getvalue().endswith("s: x, story: 20.0 tokens/s, acceptance 0.50\n")
    assert stream.getvalue().startswith("1/1 after")
