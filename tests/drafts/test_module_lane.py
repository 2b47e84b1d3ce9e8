"""Rounds of several MTP modules: equal to a recomputation of everything, whatever was accepted before."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import specdec
from specdec.drafts.multi_module_mtp import MultiModuleMTPDraft
from specdec.drafts.run import module_lane
from specdec.drafts.run.module_lane import ModuleLane
from specdec.drafts.run.runner import DraftRunner
from specdec.model.handle import TargetHandle
from specdec.model.step import Needs, States, Step

CPU = torch.device("cpu")
FAMILIES = ("deepseek_v3", "glm4_moe")


def draft_of(target: Any, k: int) -> MultiModuleMTPDraft:
    model = target.model
    block = {"method": "mtp", "num_speculative_tokens": k}
    config = specdec.resolve({"target": {"model": str(target.path)}, "speculative": block}).unwrap()
    assert (config.method, config.wiring["step_to_layer"]) == ("multi_module_mtp", tuple(j % 2 for j in range(k)))
    embed, head = model.get_input_embeddings(), model.get_output_embeddings()
    return MultiModuleMTPDraft.load(config, TargetHandle(model, embed, head, 61, 32, torch.float32, CPU, 160))


def states_of(target: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return target.model.base_model(torch.tensor([token_ids])).last_hidden_state[0]


def recomputed(
    draft: MultiModuleMTPDraft, states: torch.Tensor, token_ids: list[int], k: int
) -> tuple[list[int], list[Any]]:
    """k greedy drafts behind ``token_ids``, every step over all positions, and the caches that this fills."""
    from transformers import DynamicCache

    known, features = list(token_ids), states[None]
    positions = torch.arange(len(token_ids) - 1)[None]
    caches = []
    for step in range(k):
        cache = DynamicCache()
        with torch.inference_mode():
            tokens = torch.tensor([known[1 + step : len(token_ids) + step]])
            x = draft.inputs(tokens, features, positions == 0, step)
            # a fresh cache each step: the layer that a step writes is the only one
            hidden = draft(x, positions, None, One(cache), step)
            known.append(int(draft.logits(hidden[0, -1:], step).argmax()))
            features = draft.feedback(hidden, step)
        caches.append(cache)
    return known[len(token_ids) :], caches


class One:
    """A cache whose layers are all the same one."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **kwargs: Any) -> Any:
        return self.cache.update(keys, values, 0, *args, **kwargs)


@dataclass
class Request:
    """A text of which ``done`` tokens are consumed, and what the next step consumes of it."""

    text: list[int]
    done: int = 0
    rows: list[int] = field(default_factory=list)
    rejected: int = 0
    sampled: int = -1
    following: int = -1

    def prompt(self, count: int, sampled: int) -> None:
        """Consume ``count`` tokens of the prompt; the last ones sample a token."""
        self.rows, self.rejected = self.text[self.done : self.done + count], 0
        whole = self.done + count == len(self.text)
        self.sampled, self.following = (sampled, sampled) if whole else (-1, self.text[self.done + count])

    def verify(self, drafts: list[int], accepted: int, sampled: int) -> None:
        """Consume the newest token and drafts, keep ``accepted`` of these and sample a token."""
        self.rows, self.rejected = [self.text[-1], *drafts], len(drafts) - accepted
        self.sampled = self.following = sampled

    def settle(self) -> None:
        kept = self.rows[: len(self.rows) - self.rejected]
        self.text[self.done : self.done + len(kept)] = kept
        self.done += len(kept)
        if self.sampled >= 0:
            self.text.append(self.sampled)


def told(requests: dict[int, Request], target: Any) -> Step:
    """A step in which the target consumed ``rows`` of every request, drafts that it rejected included."""
    lists: dict[str, list[Any]] = {n: [] for n in ("slots", "token_ids", "positions", "num_rejected", "last_sampled")}
    offsets, states = [0], []
    for slot, request in requests.items():
        rows = request.rows
        states.append(states_of(target, request.text[: request.done] + rows)[request.done :])
        lists["slots"].append(slot)
        lists["token_ids"] += rows
        lists["positions"] += range(request.done, request.done + len(rows))
        lists["num_rejected"].append(request.rejected)
        lists["last_sampled"].append(request.sampled)
        offsets.append(offsets[-1] + len(rows))
    count = len(requests)
    lists |= {"row_offsets": offsets, "next_token": [r.following for r in requests.values()]}
    lists |= {"finished": [False] * count}
    return Step.of_lists(lists, states=States(last=torch.cat(states)), batch_size=count)


def asked(requests: dict[int, Request], wanted: list[int]) -> Step:
    """A step as it asks for drafts."""
    count = len(requests)
    lists = {"slots": list(requests), "num_drafts": wanted, "temperature": [0.0] * count, "seeds": [0] * count}
    return Step.of_lists(lists, batch_size=count)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("k", [2, 4])
def test_every_round_equals_a_recomputation(mtp_target, make_config, monkeypatch, family, k):
    """Unequal requests in a batch, prompts in chunks, any number of drafts and of accepted ones, requests that end."""
    target = mtp_target(family, 2)
    draft = draft_of(target, k)
    monkeypatch.setattr(module_lane, "_CHUNK", 4)
    lane = ModuleLane(DraftRunner(None, 100, CPU, 8), draft, Needs(last=True), make_config(k))
    choose = random.Random(k)
    requests = {s: Request([choose.randrange(61) for _ in range(n)]) for s, n in ((3, 5), (0, 2), (7, 19))}
    for slot in requests:
        lane.start(slot)
    for chunk in (2, 3, 14):  # one after the other comes to the end of its prompt
        reading = {s: r for s, r in requests.items() if r.sampled < 0}
        for request in reading.values():
            request.prompt(min(chunk, len(request.text) - request.done), choose.randrange(61))
        lane.feed(told(reading, target))
        for request in reading.values():
            request.settle()
    accepted_counts: set[int] = set()
    for _ in range(10):
        wanted = [choose.choice([0, k, k, k - 1]) for _ in requests]
        drafts = lane.chain(asked(requests, wanted)).rows()
        for (slot, request), drafted, count in zip(requests.items(), drafts, wanted, strict=True):
            states = states_of(target, request.text[:-1])
            expected, caches = recomputed(draft, states, request.text, count)
            assert drafted == expected
            for number, cache in enumerate(caches):
                true = lane.true_rows[slot][number]
                assert true == max(0, len(request.text) - 1 - number)
                row, layer = lane.cache.row_of[slot], lane.cache.layers[number]
                for ours, fresh in ((layer.keys, cache.layers[0].keys), (layer.values, cache.layers[0].values)):
                    torch.testing.assert_close(ours[row, :, :true], fresh[0, :, :true], atol=2e-5, rtol=1e-4)
            accepted = choose.randint(0, count)
            accepted_counts.add(accepted)
            request.verify(drafted, accepted, choose.randrange(61))
        lane.feed(told(requests, target))
        for request in requests.values():
            request.settle()
        if 0 in requests and len(requests[0].text) > 8:
            lane.finish(0)  # the row of another request moves into its place
            del requests[0]
    assert accepted_counts == set(range(k + 1)) and 0 not in requests


def test_modules_differ_and_the_first_step_is_the_single_module(mtp_target):
    from specdec.drafts.mtp import MTPDraft

    target = mtp_target("deepseek_v3", 2)
    text = [5, 9, 3, 40, 17]
    draft = draft_of(target, 2)
    both, _ = recomputed(draft, states_of(target, text[:-1]), text, 2)
    config = specdec.resolve(
        {"target": {"model": str(target.path)}, "speculative": {"method": "mtp", "num_speculative_tokens": 1}}
    ).unwrap()
    assert config.method == "mtp"
    embed, head = target.model.get_input_embeddings(), target.model.get_output_embeddings()
    single = MTPDraft.load(config, TargetHandle(target.model, embed, head, 61, 32, torch.float32, CPU, 160))
    positions = torch.arange(4)[None]
    x = single.inputs(torch.tensor([text[1:]]), states_of(target, text[:-1])[None], positions == 0)
    assert int(single.logits(single(x, positions, None, None)[0, -1:]).argmax()) == both[0]
    assert not torch.equal(draft.mtp[0].input_proj.weight, draft.mtp[1].input_proj.weight)
    draft.mtp[1].norm.weight.neg_()  # the second module is what drafts the second token
    assert recomputed(draft, states_of(target, text[:-1]), text, 2)[0][0] == both[0]
    assert recomputed(draft, states_of(target, text[:-1]), text, 2)[0][1] != both[1]


def test_rounds_are_those_of_transformers(mtp_target, monkeypatch):
    """``generate(use_mtp=True)`` with two layers, fed back after the norm, on prompts that are rejected now and then."""
    from transformers import AutoModelForCausalLM
    from transformers.generation.candidate_generator import MTPCandidateGenerator

    target = mtp_target("deepseek_v3", 2)
    model = AutoModelForCausalLM.from_pretrained(target.path).eval()
    model.config.num_mtp_layers = 2
    model._keys_to_ignore_on_load_unexpected = [r"model\.layers\.2\..*", r"model\.layers\.3\..*"]
    rounds: list[tuple[list[int], list[int]]] = []
    original = MTPCandidateGenerator.get_candidates

    def spy(self, input_ids, *args, **kwargs):
        candidates, logits = original(self, input_ids, *args, **kwargs)
        if logits is not None:
            rounds.append((input_ids[0].tolist(), candidates[0, input_ids.shape[1] :].tolist()))
        return candidates, logits

    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", spy)
    model.generate(torch.tensor([[5, 9, 3, 40]]), max_new_tokens=12, do_sample=False, use_mtp=True)
    draft = draft_of(target, 2)
    draft.zero_first = False  # transformers never does
    assert len(rounds) >= 5
    for known, theirs in rounds:
        assert recomputed(draft, states_of(target, known[:-1]), known, 2)[0] == theirs
