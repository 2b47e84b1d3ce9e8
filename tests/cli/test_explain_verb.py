"""explain: every topic has a page, typos get the nearest one, --why tells an origin."""

from __future__ import annotations

import pytest

from specdec.config.explain import explain, topics
from specdec.config.registry import builtin


def test_every_topic_has_a_page():
    registry = builtin()
    without = [topic for topic in topics(registry) if not explain(topic, registry)]
    assert without == []


def test_every_option_and_rule_of_every_method_has_a_page():
    registry = builtin()
    names = [f"{r.name}.{o}" for r in registry.records.values() for o in r.options]
    names += [f"{r.name}.{rule.id}" for r in registry.records.values() for rule in r.rules]
    assert [name for name in names if not explain(name, registry)] == []


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("dspark.dspark_draft_topk", ["integer from 1", "tokens", "draft-topk-range"]),
        ("k-exceeds-block", ["block_size", "Fix", "dflash"]),
        ("num_speculative_tokens", ["drafted", "ngram", "dspark"]),
        ("speculative.num_speculative_tokens", ["verify width"]),
        ("engine.max_num_seqs", ["Default", "requests"]),
        ("uses_aux_hidden_states", ["eagle3", "ngram"]),
        ("num_lookahead_tokens", ["k + 1", "dflash"]),
        ("NEXTN", ["mtp"]),
    ],
)
def test_pages_say_what_matters(specdec, topic, words):
    result = specdec("explain", topic)
    assert result.code == 0
    assert [word for word in words if word not in result.out] == []


def test_unknown_topic_names_the_nearest(specdec):
    result = specdec("explain", "dspark.dspark_draft_topkk")
    assert result.code == 1 and "dspark.dspark_draft_topk'" in result.err
    assert specdec("explain", "eagel3").err.count("eagle3") == 1


def test_why_names_origin_and_beaten_value(specdec, project):
    result = specdec(
        "explain", "--why", "speculative.num_speculative_tokens", "run.yaml", "speculative.num_speculative_tokens=5"
    )
    assert result.code == 0
    assert result.out.splitlines()[0] == "speculative.num_speculative_tokens = 5"
    assert "command line" in result.out and "over: 3 (run.yaml:3" in result.out
    assert specdec("explain", "--why", "speculative.num_speculatve_tokens", "run.yaml").code == 1
