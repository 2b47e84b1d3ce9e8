"""Modes are interleaved per prompt, disturbed samples are taken again, and both engines can be measured."""

from __future__ import annotations

import io

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec.bench import session
from specdec.bench.batches import measure_batches
from specdec.bench.ours import EngineMode
from specdec.bench.peers import TransformersBatches, TransformersMode
from specdec.bench.progress import Progress
from specdec.bench.samples import BenchPrompt, Sample
from specdec.bench.session import Plan, count, in_order, measure
from specdec.engine.llm import LLM

PROMPTS = [BenchPrompt(name, name, (1, 2, 3, 4, 5, 2, 3)) for name in "abc"]


class FakeMode:
    num_drafts = None
    peer = False

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
    assert log[2:10] == ["x16", "y16", "y16", "x16", "x16", "y16", "y16", "x16"]
    assert len(samples) == count(modes, PROMPTS, plan) == 12
    assert [s.prompt for s in samples[:4]] == ["a", "a", "b", "b"] and samples[-1].repeat == 1


def test_prompts_that_are_decided_are_left_out_of_further_repeats(monkeypatch):
    monkeypatch.setattr(session.CpuWatch, "disturbed", lambda self: False)

    class Noisy(FakeMode):
        def generate(self, token_ids, temperature, seed, max_tokens):
            slow = self.name == "y" and token_ids == (*PROMPTS[0].token_ids, 9) and seed % 2
            return Sample([0] * max_tokens, (0.2 if slow else 0.1), max_tokens)

    clear, mixed = PROMPTS[0], BenchPrompt("mixed", "mixed", (*PROMPTS[0].token_ids, 9))
    plan = Plan((0.0,), 4, repeats=14, tries=1, until_decided=True)
    samples = measure([Noisy("plain", []), Noisy("y", [])], [clear, mixed], plan)
    taken = [sum(s.prompt == p.id and s.mode == "y" for s in samples) for p in (clear, mixed)]
    assert taken == [10, 14]


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
    assert samples[0].first_token_seconds > 0
    assert samples[0].token_ids == samples[1].token_ids == samples[2].token_ids
    assert [s.forwards for s in samples[:2]] == [12, 12] and samples[2].forwards <= 12
    assert 0.0 <= samples[0].overhead < 1.0 and samples[1].overhead is None


def test_batches_are_repeated_and_peers_pad_them():
    model = tiny()
    ours, peer = EngineMode("plain", LLM(model, max_model_len=64), None), TransformersBatches(model)
    plan = Plan(temperatures=(0.0,), max_tokens=6, repeats=3, peer_repeats=1)
    said: list[str] = []
    results = measure_batches([ours, peer], PROMPTS, [3, 1], plan, said.append)
    assert {(t.mode, t.batch): len(t.speeds) for t in results} == {
        ("plain", 3): 3, ("plain", 1): 3, ("transformers", 3): 1, ("transformers", 1): 1,
    }  # fmt: skip
    assert all(t.tokens_per_second > 0 for t in results) and len(said) == 8
    ragged = [(5, 6, 7, 8, 9), (3, 4)]
    together, _ = peer._run(ragged, 0.0, 0, 6)
    assert together.tolist() == [peer.generate(p, 0.0, 0, 6).token_ids for p in ragged]


def test_our_modes_stay_next_to_each_other_and_take_turns_in_going_first():
    class Peer(FakeMode):
        peer = True

    modes = [FakeMode("plain", []), Peer("p", []), FakeMode("ngram", []), Peer("q", [])]
    names = [[m.name for m in in_order(modes, turn)] for turn in range(3)]
    assert names == [["plain", "ngram", "p", "q"], ["q", "p", "ngram", "plain"], ["plain", "ngram", "p", "q"]]


def test_the_order_on_one_prompt_changes_from_repeat_to_repeat_and_peers_stop_early():
    log: list[str] = []
    modes = [FakeMode("x", log), FakeMode("y", log), FakeMode("p", log)]
    modes[2].peer = True
    plan = Plan(temperatures=(0.0,), max_tokens=16, repeats=2, tries=1, peer_repeats=1)
    samples = measure(modes, PROMPTS[:2], plan)
    order = [[s.mode for s in samples if (s.prompt, s.repeat) == ("a", r)] for r in range(2)]
    assert order == [["x", "y", "p"], ["y", "x"]]
    assert len(samples) == count(modes, PROMPTS[:2], plan) == 10


def test_progress_without_a_terminal_prints_lines_not_bars():
    stream = io.StringIO()
    progress = Progress(1, stream)
    sample = Sample([0] * 10, 0.5, 5, [4], [2], mode="x", kind="story")
    progress.step(sample)
    progress.close()
    assert stream.getvalue().endswith("s: x, story: 20.0 tokens/s, acceptance 0.50\n")
    assert stream.getvalue().startswith("1/1 after")
