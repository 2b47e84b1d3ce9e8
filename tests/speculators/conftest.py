"""A hand-made configuration and a greedy round-by-round driver, so that speculators are tested without an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from specdec.config.final.speculative_config import Namespace, SpeculativeConfig
from specdec.config.language.record import SpeculatorRecord
from specdec.speculators.base import BaseSpeculator, Drafts, Step


def config(
    k: int, options: dict[str, Any] | None = None, *, draft: dict[str, Any] | None = None, **groups: dict[str, Any]
) -> SpeculativeConfig:
    """A finalized configuration with these options and facts and nothing else."""
    record = SpeculatorRecord(
        name="hand_made",
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
    names = ("target", "engine", "sampling", "wiring", "verification", "numbers", "resources")
    return SpeculativeConfig(
        method="hand_made",
        record=record,
        num_speculative_tokens=k,
        options=Namespace(options or {}),
        draft=Namespace(draft or {}),
        **{name: Namespace(groups.get(name, {})) for name in names},
    )


@dataclass
class Running:
    """One request in the driver."""

    slot: int
    tokens: list[int]
    max_tokens: int
    k: int
    prompt_len: int
    computed: int = 0
    drafts: list[int] = field(default_factory=list)
    rounds: list[tuple[list[int], int]] = field(default_factory=list)  # (drafts, accepted)
    temperature: float = 0.0
    seed: int = 0

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]


def step_batch(
    running: Sequence[Running], rows: Sequence[list[int]], rejected: Sequence[int], sampled: Sequence[int]
) -> Step:
    """The batch of one step; ``rows`` are the tokens each request's target consumed, starting at ``computed``."""
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return Step(
        slots=torch.tensor([s.slot for s in running]),
        num_drafts=torch.tensor([s.k for s in running]),
        token_ids=torch.tensor([t for row in rows for t in row]),
        positions=torch.tensor([s.computed + i for s, row in zip(running, rows, strict=True) for i in range(len(row))]),
        row_offsets=torch.tensor(offsets),
        num_rejected=torch.tensor(list(rejected)),
        last_sampled=torch.tensor(list(sampled)),
        next_token=torch.tensor(
            [
                (s.tokens[s.computed + len(row) :] or [-1])[0] if t < 0 else t
                for s, row, t in zip(running, rows, sampled, strict=True)
            ]
        ),
        finished=torch.zeros(len(running), dtype=torch.bool),
        temperature=torch.tensor([s.temperature for s in running]),
        seeds=torch.tensor([s.seed for s in running]),
    )


def drive(
    speculator: BaseSpeculator,
    next_token: Callable[[list[int]], int],
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | Sequence[int] = 20,
    k: int | Sequence[int] | None = None,
    chunk: int | None = None,
    slots: Sequence[int] | None = None,
    after_step: Callable[[list[Running]], None] | None = None,
) -> list[Running]:
    """Greedy speculative decoding of the prompts in one batch; ``chunk`` splits prompts over several steps."""
    limit = speculator.num_speculative_tokens
    limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
    ks = [limit if k is None else k] * len(prompts) if k is None or isinstance(k, int) else list(k)
    places = list(slots or range(len(prompts)))
    requests = [Running(places[i], list(p), limits[i], ks[i], len(p)) for i, p in enumerate(prompts)]
    for request in requests:
        speculator.start(request.slot, torch.tensor(request.tokens))
    running = list(requests)
    while running:
        rows, rejected, sampled, grown = [], [], [], []
        for s in running:
            pending = s.tokens[s.computed :]
            if chunk and len(pending) > chunk and not s.drafts:
                rows.append(pending[:chunk])
                rejected.append(0)
                sampled.append(-1)
                grown.append([])
                continue
            accepted: list[int] = []
            while True:
                token = next_token(s.tokens + accepted)
                if len(accepted) == len(s.drafts) or token != s.drafts[len(accepted)]:
                    break
                accepted.append(token)
            rows.append(pending + s.drafts)
            rejected.append(len(s.drafts) - len(accepted))
            sampled.append(token)
            grown.append([*accepted, token])
            s.rounds.append((s.drafts, len(accepted)))
        batch = step_batch(running, rows, rejected, sampled)
        speculator.observe(batch)
        asked = [i for i, s in enumerate(running) if s.k and sampled[i] >= 0]
        found: dict[int, list[int]] = {}
        if asked:
            drafts = speculator.propose(batch.only(asked, [running[i].k for i in asked]))
            assert drafts.token_ids.shape == (len(asked), limit)
            found = dict(zip(asked, drafts.token_ids.tolist(), strict=True))
        for i, s in enumerate(running):
            s.computed += len(rows[i]) - rejected[i]
            s.tokens += grown[i]
            row = found.get(i, [-1] * limit)
            s.drafts = row[: row.index(-1)] if -1 in row else row
            assert all(t == -1 for t in row[len(s.drafts) :])
            assert len(s.drafts) <= s.k
            s.drafts = s.drafts[: max(0, s.max_tokens - len(s.output) - 1)]
        if after_step:
            after_step(running)
        for s in [s for s in running if len(s.output) >= s.max_tokens]:
            del s.tokens[s.prompt_len + s.max_tokens :]
            speculator.finish(s.slot)
            running.remove(s)
    return requests


@pytest.fixture(scope="session")
def make_config() -> Callable[..., SpeculativeConfig]:
    return config


@pytest.fixture(scope="session")
def run_greedy() -> Callable[..., list[Running]]:
    return drive


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., Step]:
    return step_batch


@pytest.fixture(scope="session")
def tell() -> Callable[[BaseSpeculator, Step], Drafts]:
    """What the engine does after a forward whose requests all want drafts."""

    def told(speculator: BaseSpeculator, step: Step) -> Drafts:
        speculator.observe(step)
        return speculator.propose(step)

    return told


@pytest.fixture(scope="session")
def make_request() -> type[Running]:
    return Running


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Makes tiny random float32 llamas, saved to disk; (model, path) by seed and vocabulary."""
    from transformers import LlamaConfig, LlamaForCausalLM

    made: dict[tuple[Any, ...], Any] = {}

    def make(seed: int = 0, vocab_size: int = 60, max_len: int = 256, **extra: Any) -> Any:
        key = (seed, vocab_size, max_len, *sorted(extra.items()))
        if key not in made:
            torch.manual_seed(seed)
            shape = LlamaConfig(
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                vocab_size=vocab_size,
                max_position_embeddings=max_len,
                initializer_range=0.4,
                tie_word_embeddings=False,
                eos_token_id=None,
                bos_token_id=None,
                pad_token_id=None,
                **extra,
            )
            model = LlamaForCausalLM(shape).eval()
            path = tmp_path_factory.mktemp("llama")
            model.save_pretrained(path)
            made[key] = (model, str(path))
        return made[key]

    return make


@pytest.fixture(scope="session")
def greedy_of() -> Callable[[Any], Callable[[list[int]], int]]:
    """The greedy next token of a transformers model, by a full forward over the prefix."""

    def of(model: Any) -> Callable[[list[int]], int]:
        known: dict[tuple[int, ...], int] = {}

        def next_token(prefix: list[int]) -> int:
            key = tuple(prefix)
            if key not in known:
                with torch.inference_mode():
                    known[key] = int(model(torch.tensor([prefix])).logits[0, -1].argmax())
            return known[key]

        return next_token

    return of


@pytest.fixture(scope="session")
def target_handle() -> Callable[..., Any]:
    """The handle an engine would give for a transformers model in memory."""
    from specdec.model.target import prepare_target

    return lambda model, max_len=256, tokenizer=None: prepare_target(model, device="cpu", tokenizer=tokenizer).handle(
        max_len
    )
