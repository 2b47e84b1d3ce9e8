"""Each number of the metrics on small hand-made runs."""

from __future__ import annotations

import json

import pytest

from specdec.engine.metrics import EngineMetrics, RequestMetrics, SpeculationCounts, json_line


def test_accepted_and_emitted_differ_when_eos_cuts_the_block() -> None:
    counts = SpeculationCounts()
    counts.record_step(
        drafted=5, accepted=5, emitted=3
    )  # drafts 5, 6, EOS, 7, 8: all accepted, three are the request's
    assert (counts.verifier_accepted, counts.emitted, counts.mean_emitted_per_step) == (5, 3, 3.0)
    assert counts.mean_accepted_length == 6.0


def test_pooled_and_mean_of_requests() -> None:
    engine = EngineMetrics()
    for steps, emitted in ((10, 30), (1, 1)):
        request = RequestMetrics(finish_reason="length")
        for _ in range(steps):
            request.counts.record_step(drafted=4, accepted=2, emitted=emitted // steps)
        engine.finish(request)
    both = engine.to_dict()["mean_emitted_per_step"]
    assert both["pooled"] == pytest.approx(31 / 11)
    assert both["mean_of_requests"] == 2.0
    assert engine.to_dict()["requests"] == {"length": 2}


def test_acceptance_by_position_with_ragged_drafts() -> None:
    counts = SpeculationCounts()
    for drafted, accepted in ((3, 3), (3, 1), (1, 1), (0, 0), (2, 0)):
        counts.record_step(drafted, accepted, accepted + 1)
    assert counts.drafted_per_position == [4, 3, 2]
    assert counts.accepted_per_position == [3, 1, 1]
    assert counts.acceptance_per_position == [3 / 4, 1 / 3, 1 / 2]
    assert counts.conditional_acceptance_per_position == [3 / 4, 1 / 2, 1.0]
    assert counts.acceptance_rate == 5 / 9
    assert (counts.steps, counts.steps_with_drafts) == (5, 4)
    assert counts.mean_accepted_length == 1 + 5 / 4


def test_nothing_counted_is_none_not_a_crash() -> None:
    counts = SpeculationCounts()
    assert counts.mean_emitted_per_step is counts.acceptance_rate is counts.mean_accepted_length is None
    assert counts.acceptance_per_position == []
    engine = EngineMetrics()
    engine.finish(RequestMetrics())
    assert engine.mean_of_requests is None
    assert engine.requests == {"abort": 1}


def test_times() -> None:
    request = RequestMetrics(arrival_time=10.0, first_token_time=10.5, finish_time=12.0)
    request.counts.record_step(0, 0, 1)
    assert (request.seconds_to_first_token, request.tokens_per_second) == (0.5, 0.5)


def test_json_and_prometheus_agree() -> None:
    engine = EngineMetrics({"method": 'a"b'})
    request = RequestMetrics(finish_reason="stop")
    request.counts.record_step(2, 1, 2)
    engine.finish(request)
    engine.add_seconds("draft", 0.25)
    engine.add_seconds("draft", 0.25)
    values = json.loads(json_line(engine.to_dict()))
    text = engine.prometheus()
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert samples['specdec_accepted_tokens_total{method="a\\"b"}'] == str(values["verifier_accepted"]) == "1"
    assert samples['specdec_accepted_tokens_per_position_total{method="a\\"b",position="0"}'] == "1"
    assert samples['specdec_phase_seconds_total{method="a\\"b",phase="draft"}'] == "0.5"
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            assert line.split()[2].endswith("_total")
