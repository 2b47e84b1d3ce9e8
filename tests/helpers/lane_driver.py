"""A target that says what it likes, and a driver that tells a lane of it: random chunks, acceptances, ends and wishes."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from specdec.drafts.run.lane import Lane
from specdec.model.step import Drafts, Needs, States, Step

CPU = torch.device("cpu")
Facts = dict[str, object]
_LAST = Needs(last=True)


class World:
    """A target that says what it likes: random tokens, and states that depend on the text before them."""

    def __init__(self, seed: int, width: int) -> None:
        self.random, self.width = random.Random(seed), width

    def state(self, tokens: list[int]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(hash(tuple(tokens)) % 2**31)
        return torch.randn(self.width, generator=generator)

    def states(self, tokens: list[int]) -> torch.Tensor:
        return torch.stack([self.state(tokens[: i + 1]) for i in range(len(tokens))])


def step_of(rows: list[Facts], drafts_wanted: list[int], needs: Needs = _LAST) -> Step:
    offsets, ids, positions, states = [0], [], [], []
    for row in rows:
        ids += row["tokens"]
        positions += range(row["start"], row["start"] + len(row["tokens"]))
        offsets.append(len(ids))
        states.append(row["states"])
    lists = {name: [row[name] for row in rows] for name in ("num_rejected", "last_sampled", "next_token", "finished")}
    lists |= {"slots": [row["slot"] for row in rows], "num_drafts": drafts_wanted, "token_ids": ids}
    lists |= {"positions": positions, "row_offsets": offsets}
    lists |= {"temperature": [0.0] * len(rows), "seeds": [1] * len(rows)}
    held = torch.cat(states)
    captured = States(aux=held, boundaries=needs.boundaries) if needs.boundaries else States(last=held)
    return Step.of_lists(lists, states=captured, device=CPU)


def drive(
    lane: Lane,
    propose: Callable[[Step], Drafts],
    recomputed: Callable[[list[int], torch.Tensor, int], list[int]],
    *,
    seed: int,
    k: int,
    vocab: int,
    width: int,
    rounds: int = 25,
    rows: int = 4,
) -> int:
    """Random prompts, chunks, acceptances, ends and numbers of drafts; the number of rounds that were recomputed.

    ``recomputed(text, states of all but its last token [n, width], count)`` are the drafts without any cache.
    """
    world, running, checked, free = World(seed, width), {}, 0, list(range(rows))
    rng = world.random
    for _ in range(rounds):
        while free and rng.random() < 0.7:
            slot = free.pop(rng.randrange(len(free)))
            running[slot] = {
                "text": [rng.randrange(vocab) for _ in range(rng.randrange(1, 15))],
                "done": 0,
                "drafts": [],
            }
            lane.start(slot)
        told, wanted = [], []
        for slot, request in running.items():
            pending = request["text"][request["done"] :]
            chunk = rng.randrange(1, len(pending)) if len(pending) > 1 and rng.random() < 0.5 else len(pending)
            tokens, samples = pending[:chunk], chunk == len(pending)
            drafts = request["drafts"] if samples else []
            accepted = rng.randrange(len(drafts) + 1) if drafts else 0
            read = request["text"][: request["done"] + chunk] + drafts
            fresh = rng.randrange(vocab)
            text = request["text"][: request["done"] + chunk] + drafts[:accepted]
            end = samples and rng.random() < 0.1
            told.append({
                "slot": slot, "tokens": tokens + drafts, "start": request["done"],
                "states": world.states(read)[request["done"] :], "num_rejected": len(drafts) - accepted,
                "last_sampled": fresh if samples else -1,
                "next_token": fresh if samples else request["text"][request["done"] + chunk], "finished": end,
            })  # fmt: skip
            request["done"] += chunk + accepted
            request["text"] = [*text, fresh] if samples else request["text"]
            request["drafts"] = []
            wanted.append(rng.randrange(k + 1) if samples and not end else 0)
        if not told:
            continue
        step = step_of(told, wanted, lane.pairs.needs)
        lane.feed(step)
        asked = [i for i, count in enumerate(wanted) if count]
        if asked:
            drafts = propose(step.only(asked, [wanted[i] for i in asked])).rows()
            for i, row in zip(asked, drafts, strict=True):
                request = running[told[i]["slot"]]
                states = world.states(request["text"][:-1])
                assert row == recomputed(request["text"], states, wanted[i]), (seed, told[i]["slot"])
                request["drafts"], checked = row, checked + 1
        for row in told:
            if row["finished"]:
                del running[row["slot"]]
                lane.finish(row["slot"])
                free.append(row["slot"])
    return checked
