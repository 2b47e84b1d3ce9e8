"""Decode graphs: padding to buckets and static buffers, with a recorder that replays by running again."""

from __future__ import annotations

import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.model.graphs import DecodeGraphs

PROMPTS = [[3, 14, 15, 9, 2, 6, 5], [31], list(range(10, 30))]


def replaying(run):
    """What a CUDA graph does, on any device: the outputs keep their place, a replay overwrites them."""
    logits = run()

    def replay():
        logits.copy_(run())

    return logits, replay


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gemma2"])
def test_graphs_give_the_same_output(kind, tiny, scripted):
    model = tiny(kind)
    params = [SamplingParams(temperature=0.0, max_tokens=n) for n in (12, 20, 7)]

    def run(graphs):
        llm = LLM(model, speculator=scripted(lambda known, k: known[-k:], k=3), max_num_seqs=3, max_model_len=64)
        runner = llm.engine.runner
        if graphs:
            runner.graphs = DecodeGraphs(llm.target, runner.cache, 4, record=replaying)
        outputs = llm.generate(PROMPTS, params)
        assert all(o.error is None for o in outputs)
        return [o.outputs[0].token_ids for o in outputs], runner.graphs

    want, _ = run(False)
    got, graphs = run(True)
    assert got == want
    assert {key[0] for key in graphs.steps} == {1, 2, 3}  # buckets never exceed the cache's rows
    assert {key[1] for key in graphs.steps} <= {1, 2, 4}
    assert [graphs.padded_width(width) for width in range(1, 5)] == [1, 2, 4, 4]


def test_states_of_replayed_steps_reach_the_speculator(tiny, scripted):
    model = tiny("llama")

    def run(graphs):
        speculator = scripted(lambda known, k: known[-k:], k=3, capabilities={"uses_target_hidden_states": True})
        llm = LLM(model, speculator=speculator, max_num_seqs=3, max_model_len=64)
        runner = llm.engine.runner
        if graphs:
            # hooks run at capture only, so a replay here must not leave states behind either
            def record(step):
                logits = step()
                taken = runner.capture._last

                def replay():
                    logits.copy_(step())
                    taken.copy_(runner.capture._last)
                    runner.capture._last = taken

                return logits, replay

            runner.graphs = DecodeGraphs(llm.target, runner.cache, 4, runner.capture, record)
        llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=9))
        runner.capture.remove()
        return speculator.batches

    for eager, graph in zip(run(False), run(True), strict=True):
        torch.testing.assert_close(eager.states.last, graph.states.last, atol=1e-5, rtol=1e-5)
