"""Peers that live in another interpreter: which, how they are started, and as modes of a benchmark."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec.bench.samples import ModeFailed, Sample
from specdec.bench.worker import Worker

SCRIPTS = Path(__file__).parent / "workers"
NGRAM = "+ngram"


class PeerError(ValueError):
    """A peer is named that cannot be started; the message says what is missing."""


@dataclass(frozen=True)
class PeerSpec:
    """``base[-label][+ngram]``: the base chooses interpreter and script, the full name the options."""

    name: str
    python: str
    script: Path
    speculates: bool
    options: dict[str, Any] = field(default_factory=dict)


def packaged() -> list[str]:
    """Bases whose worker script ships with the package."""
    return sorted(path.stem.removesuffix("_worker") for path in SCRIPTS.glob("*_worker.py"))


def base_of(name: str) -> str:
    """``engine`` of ``engine-float32+ngram``."""
    return name.removesuffix(NGRAM).partition("-")[0]


def specs(
    names: Sequence[str],
    pythons: Mapping[str, str],
    scripts: Mapping[str, str],
    options: Mapping[str, str],
    others: Sequence[str] = (),
) -> list[PeerSpec]:
    """The peers named, with the interpreter of their base (or the variable SPECDEC_<BASE>_PYTHON).

    Raises ``PeerError`` for a base without interpreter or script, and for options that are no JSON object; ``others``
    are names that the message offers as well.
    """
    found = []
    for name in names:
        base, plain_name = base_of(name), name.removesuffix(NGRAM)
        if base not in scripts and base not in packaged():
            known = ", ".join([*others, *packaged(), "none"])
            raise PeerError(f"unknown peer {name!r}; there are: {known}, and any that --peer-script {base}=FILE names")
        variable = f"SPECDEC_{base.upper()}_PYTHON"
        python = pythons.get(base) or os.environ.get(variable)
        if python is None:
            raise PeerError(
                f"peer {name} lives in another interpreter; name it with --peer-python {base}=/path/to/python "
                f"or the variable {variable}"
            )
        script = Path(scripts[base]) if base in scripts else SCRIPTS / f"{base}_worker.py"
        given = options.get(plain_name, "{}")
        try:
            chosen = json.loads(given)
        except ValueError:
            chosen = None
        if not isinstance(chosen, dict):
            raise PeerError(
                f'--peer-options {plain_name}={given}: not a JSON object, for example {{"dtype": "float32"}}'
            )
        found.append(PeerSpec(name, python, script, name.endswith(NGRAM), chosen))
    return found


class ExternalMode:
    """A peer's engine behind a worker."""

    peer = True

    def __init__(self, spec: PeerSpec, num_drafts: int | None, folder: Path, timeout: float) -> None:
        self.num_drafts = num_drafts
        self.name = spec.name if num_drafts is None else f"{spec.name.replace('+', ' ')} k={num_drafts}"
        log = folder / f"{self.name.replace(' ', '-').replace('=', '')}.log"
        self.worker = Worker(self.name, spec.python, spec.script, log, timeout)
        self.options = spec.options

    def load(self, model: str, dtype: str, max_model_len: int, max_num_seqs: int) -> dict[str, Any]:
        """Load the target; returns how the peer describes itself and its settings."""
        limits = {"max_model_len": max_model_len, "max_num_seqs": max_num_seqs}
        target = {"model": model, "dtype": dtype, **limits}
        return self.worker.ask(do="load", **target, num_drafts=self.num_drafts, options=self.options)

    def generate(self, token_ids: Sequence[int], temperature: float, seed: int, max_tokens: int) -> Sample:
        answer = self._ask([token_ids], temperature, seed, max_tokens)
        first = answer.get("first_token_seconds")
        return Sample(
            token_ids=answer["token_ids"][0],
            seconds=answer["seconds"],
            forwards=answer.get("forwards") or 0,
            drafted_per_position=answer.get("drafted") or [],
            accepted_per_position=answer.get("accepted") or [],
            first_token_seconds=first,
        )

    def generate_together(
        self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, max_tokens: int
    ) -> tuple[int, float]:
        """(tokens, seconds) of all prompts in one batch."""
        answer = self._ask(prompts, temperature, seed, max_tokens)
        return sum(map(len, answer["token_ids"])), answer["seconds"]

    def cpu_seconds(self) -> float:
        return self.worker.cpu_seconds()

    def close(self) -> None:
        self.worker.close()

    def _ask(self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, max_tokens: int) -> dict[str, Any]:
        listed = [list(prompt) for prompt in prompts]
        how = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
        answer = self.worker.ask(do="generate", prompts=listed, **how)
        wrong = _mistake(answer, len(prompts), max_tokens)
        if wrong:
            self.worker.close()
            raise ModeFailed(f"{self.name}: its answer has {wrong}")
        return answer


def _mistake(answer: Mapping[str, Any], prompts: int, max_tokens: int) -> str | None:
    """What is wrong with an answer to ``generate``."""
    ids, seconds = answer.get("token_ids"), answer.get("seconds")
    if not isinstance(ids, list) or len(ids) != prompts or not all(isinstance(one, list) for one in ids):
        return f"no token_ids of {prompts} prompts"
    lengths = sorted({len(one) for one in ids})
    if lengths != [max_tokens]:
        return f"{lengths} tokens a prompt, asked for {max_tokens}"
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        return f"seconds {seconds!r}, not a number above 0"
    for name in ("drafted", "accepted"):
        counts = answer.get(name) or []
        if not isinstance(counts, list) or not all(isinstance(c, int) for c in counts):
            return f"{name} {counts!r}, not a list of counts"
    return None


@dataclass
class Opened:
    """Peers that are ready, what each says of itself, and why the others are not."""

    modes: list[ExternalMode] = field(default_factory=list)
    engines: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def open_peers(
    chosen: Sequence[PeerSpec],
    lookup: Sequence[int],
    folder: Path,
    timeout: float,
    target: Mapping[str, Any],
    say: Callable[[str], None],
) -> Opened:
    """Start and load one worker per peer, and per k for those that speculate; ``target`` is what ``load`` takes."""
    opened = Opened()
    for spec in chosen:
        for k in lookup if spec.speculates else (None,):
            mode = None
            start = time.monotonic()
            try:
                mode = ExternalMode(spec, k, folder, timeout)
                say(f"{mode.name}: loading")
                opened.engines[mode.name] = mode.load(**target)
            except ModeFailed as error:
                opened.failures.append(str(error))
            except BaseException:
                for one in [*opened.modes, *([mode] if mode else [])]:
                    one.close()
                raise
            else:
                opened.modes.append(mode)
                say(f"{mode.name}: ready after {time.monotonic() - start:.0f} s")
    return opened
