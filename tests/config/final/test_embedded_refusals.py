"""What the embedded engine refuses and ignores, by the marks in the records and in sections.yaml."""

from __future__ import annotations

import pytest

import specdec
from specdec.config.final.embedded_refusals import embedded_findings, plain_findings
from specdec.config.records.sections import section_fields

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256,
    "max_position_embeddings": 512,
}  # fmt: skip
NGRAM = {"method": "ngram", "num_speculative_tokens": 3}
DRAFT = {"method": "draft_model", "model": "./d", "num_speculative_tokens": 3}
EAGLE = {"method": "eagle3", "model": "./d", "num_speculative_tokens": 3}
PLANNED = {"method": "mtp", "num_speculative_tokens": 2}


def findings(speculative, target=None, engine=None, draft=LLAMA):
    document = {"target": {"model": "./t", **(target or {})}, "speculative": speculative, "engine": engine or {}}
    config = specdec.resolve(document, target_config=LLAMA, draft_config=draft).unwrap()
    return config, {(d.severity, d.path) for d in embedded_findings(config)}


def test_nothing_is_said_about_what_runs() -> None:
    assert findings(NGRAM, {"dtype": "float32", "max_model_len": 64}, {"max_num_seqs": 2})[1] == set()
    assert findings(DRAFT)[1] == set()


@pytest.mark.parametrize(
    ("speculative", "target", "engine", "expected"),
    [
        (NGRAM, {"tensor_parallel_size": 2}, {}, ("error", "target.tensor_parallel_size")),
        (NGRAM, {"trust_remote_code": True}, {}, ("error", "target.trust_remote_code")),
        (NGRAM, {}, {"pipeline_parallel_size": 2}, ("error", "engine.pipeline_parallel_size")),
        (NGRAM, {}, {"kv_connector": "x"}, ("error", "engine.kv_connector")),
        (NGRAM, {}, {"enable_prefix_caching": False}, ("warning", "engine.enable_prefix_caching")),
        (DRAFT, {"code_revision": "main"}, {}, ("warning", "target.code_revision")),
        ({**DRAFT, "trust_remote_code": True}, {}, {}, ("error", "speculative.trust_remote_code")),
        ({**DRAFT, "code_revision": "main"}, {}, {}, ("warning", "speculative.code_revision")),
        ({**DRAFT, "use_local_argmax_reduction": True}, {}, {}, ("warning", "speculative.use_local_argmax_reduction")),
        ([NGRAM, {**DRAFT, "code_revision": "main"}], {}, {}, ("warning", "speculative[1].code_revision")),
    ],
)
def test_what_is_marked_is_found_where_it_is_written(speculative, target, engine, expected) -> None:
    config, found = findings(speculative, target, engine)
    assert expected in found
    for finding in embedded_findings(config):
        assert finding.fix and "embedded engine" in finding.message


def test_values_that_ask_for_nothing_are_fine() -> None:
    quiet = {**DRAFT, "use_local_argmax_reduction": False, "trust_remote_code": False, "code_revision": None}
    assert findings(quiet, {"trust_remote_code": False, "tensor_parallel_size": 1})[1] == set()


def test_a_mark_may_depend_on_a_value() -> None:
    chain, tree = ({"steps": 3, "topk": n, "verify_tokens": 4} for n in (1, 2))
    from specdec.config.final.embedded_refusals import _judged
    from specdec.config.language.record import OptionSpec

    spec = OptionSpec("tree", ("object",), "", engines={"embedded": "refused when topk is above 1: it drafts chains"})
    assert list(_judged(spec, chain, "speculative.tree", {})) == []
    assert next(d.message for d in _judged(spec, tree, "speculative.tree", {})).endswith("cannot do: it drafts chains")


def test_a_method_without_a_class_here_is_refused_alone_and_in_a_chain() -> None:
    registry = specdec.resolve({"target": {"model": "./t"}, "speculative": NGRAM}, target_config=LLAMA).unwrap()
    from dataclasses import replace

    planned = replace(registry, record=replace(registry.record, engines={"embedded": "planned"}))
    assert {(d.code, d.path) for d in embedded_findings(planned)} == {("engine-cannot-run", "speculative.method")}
    chain = replace(registry, members=(registry, planned))
    assert {d.code for d in embedded_findings(chain)} == {"engine-cannot-run"}
    assert plain_findings(planned) == []


def test_every_setting_is_read_or_marked() -> None:
    """A field that this engine neither reads nor marks would be ignored silently."""
    setup = pytest.importorskip("specdec.engine.setup")
    counted_by_plan = {"memory_bytes", "min_kv_bytes"}
    for section, read in (("target", setup.TARGET_SETTINGS), ("engine", setup.ENGINE_SETTINGS)):
        for name, spec in section_fields()[section].items():
            known = name in (*setup.TARGET_SETTINGS, *read) or name in counted_by_plan or "embedded" in spec.engines
            assert known, f"{section}.{name}"
