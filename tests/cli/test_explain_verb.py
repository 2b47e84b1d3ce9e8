"""explain: every topic has a page, typos get the nearest one, --why tells an origin."""

from __future__ import annotations

import pytest

from specdec.config.records.registry import builtin
from specdec.config.show.explain import explain, topics


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
        ("dspark.dspark_draft_topk", ["In specdec", "In vLLM", "In SGLang", "dspark_draft_topk of the checkpoint"]),
        (
            "dflash.num_speculative_tokens",
            ["speculative_tokens of the checkpoint, else", "computed: draft.sample_from_anchor ?"],
        ),
        ("draft.block_size", ["dflash_config.block_size", "Rows of the trained block"]),
        ("watermarking", ["peagle", "no: parallel rows"]),
        ("mark", ["engine feature"]),
        (
            "eagle3",
            [
                "Draft module",
                "specdec.drafts.eagle3",
                "Memory",
                "draft_logits_bytes",
                "Compiled graphs",
                "aux_layer_ids",
            ],
        ),
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
    two = specdec("explain", "--why", "speculative.method", "run.yaml", "other.yaml")
    assert two.code == 2 and "one file at a time" in two.err


def test_pages_fit_a_terminal_and_hold_no_python_or_casts():
    registry = builtin()
    names = [*topics(registry), *(f"{r.name}.{o}" for r in registry.records.values() for o in r.options)]
    for name in names:
        page = explain(name, registry) or ""
        lines = [line for line in page.splitlines() if " " in line.strip() and "://" not in line]
        assert max(map(len, lines), default=0) <= 100, name
        assert "dyn(" not in page and "from ['" not in page and "None" not in page.split(), name


def test_topics_are_listed_by_kind(specdec):
    out = specdec("explain").out
    assert out.startswith("methods\n  ngram, ") and "\nerror codes\n" in out
    assert max(len(line) for line in out.splitlines()) <= 100
