"""From a record's implementation to an instance."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import pytest
import torch

from specdec.config.final.speculative_config import Namespace, SpeculativeConfig
from specdec.config.language.record import SpeculatorRecord
from specdec.speculators import BaseSpeculator, Drafts, SpeculatorError, init_speculator

EMPTY = Namespace()
CPU = torch.device("cpu")


class Plain(BaseSpeculator):
    def propose(self, batch):
        return Drafts(torch.full((1, 1), -1))


class WithStates(Plain):
    def __init__(self, config, device, req_states):
        super().__init__(config, device)
        self.req_states = req_states


class Swallows(Plain):
    def __init__(self, config, device, **others):
        super().__init__(config, device)
        self.others = others


class Incomplete(BaseSpeculator):
    pass


@pytest.fixture
def config(monkeypatch):
    module = types.ModuleType("third_party_speculator")
    module.__dict__.update({c.__name__: c for c in (Plain, WithStates, Swallows, Incomplete)}, number=3)
    monkeypatch.setitem(sys.modules, "third_party_speculator", module)
    record = SpeculatorRecord(
        name="mine",
        title="",
        summary="",
        references=(),
        status="stable",
        since="0.1",
        guarantee="lossless",
        implementation=None,
        draft_model=None,
        engines={},
        capabilities={},
        options={},
        declares=None,
        facts={},
        rewrites=(),
        defaults={},
        derive={},
        hash_factors=(),
        rules=(),
        resources={},
    )

    def build(implementation):
        return SpeculativeConfig(
            "mine", replace(record, implementation=implementation), 3, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY,
            EMPTY, EMPTY,
        )  # fmt: skip

    return build


def test_req_states_go_only_to_a_constructor_that_names_them(config):
    states = object()
    plain = init_speculator(config("third_party_speculator:Plain"), CPU, states)
    assert type(plain) is Plain and plain.num_speculative_tokens == 3
    assert init_speculator(config("third_party_speculator:WithStates"), CPU, states).req_states is states
    assert init_speculator(config("third_party_speculator:Swallows"), CPU, states).others == {}


@pytest.mark.parametrize(
    "implementation, words",
    [
        (None, "'mine' has no implementation.*specdec export vllm"),
        ("third_party_speculator", "package.module:Class"),
        (":Plain", "package.module:Class"),
        ("no_such_module_at_all:Plain", "no_such_module_at_all cannot be imported"),
        ("third_party_speculator:Missing", "has no Missing"),
        ("third_party_speculator:number", "not a subclass of"),
        ("collections:OrderedDict", "not a subclass of"),
        ("third_party_speculator:Incomplete", "lacks the methods propose"),
    ],
)
def test_what_cannot_be_built_says_why(implementation, words, config):
    with pytest.raises(SpeculatorError, match=words):
        init_speculator(config(implementation), CPU)
