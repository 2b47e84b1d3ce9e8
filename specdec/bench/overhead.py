"""Where the time of a decode step goes: ``python -m specdec.bench.overhead``.

Prints medians in microseconds per phase of steps at one batch size, greedy and sampled, without and with prompt lookup.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

from specdec.bench.prompts import read

PHASES = ("schedule", "forward", "sample", "draft", "rest")
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}


def step_times(llm: Any, prompts: Sequence[Any], params: Any) -> dict[bool, list[dict[str, float]]]:
    """Seconds per phase of every decode step, by whether it verified drafts.

    ``rest`` is all that is no phase of the runner: endings, text, history, metrics, control, the caller's own loop.
    """
    steps: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    drafted, begin = 0, time.perf_counter()

    def on_step(engine: Any, moved: Sequence[Any]) -> None:
        nonlocal drafted, begin
        for request in moved:  # what streaming reads
            assert request.state.streamable_text is not None
        now, times = time.perf_counter(), engine.runner.times
        found = {"schedule": times.prepare, "forward": times.forward, "sample": times.verify, "draft": times.draft}
        found["rest"] = now - begin - sum(found.values())
        total = sum(request.metrics.counts.drafted for request in moved)
        if all(request.num_output > 1 for request in moved):
            steps[total > drafted].append(found)
        drafted, begin = total, time.perf_counter()

    llm.generate(prompts, params, use_chat=True, on_step=on_step)
    return steps


def rows(llm: Any, name: str, prompts: Sequence[Any], temperature: float, max_tokens: int) -> list[list[str]]:
    """A row per kind of step that occurred."""
    from specdec.engine.sampling.sampling_params import SamplingParams

    params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=1, ignore_eos=True)
    table = []
    for with_drafts, steps in step_times(llm, prompts, params).items():
        if len(steps) < 3:
            continue
        spent = {phase: statistics.median(step[phase] for step in steps) for phase in PHASES}
        total = sum(spent.values())
        outside = total - spent["forward"] - spent["draft"]
        cells = [f"{1e6 * seconds:.0f}" for seconds in spent.values()]
        kind = f"{name}, {'drafts' if with_drafts else 'no drafts'}"
        shares = [f"{outside / total:.1%}", f"{spent['draft'] / total:.1%}"]
        table.append([kind, f"{temperature:g}", str(len(steps)), *cells, *shares])
    return table


def main() -> None:
    from specdec.engine.llm import LLM

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=2, help="runs per mode, each of another prompt")
    args = parser.parse_args()
    plain = LLM(args.model, max_num_seqs=args.batch, max_model_len=2048)
    modes = [("plain", plain)]
    # always drafting shows what a drafting step costs even where drafting does not pay
    for name, adaptive in (("ngram", True), ("ngram always", False)):
        llm = LLM(plain.target.model, NGRAM, tokenizer=plain.tokenizer, max_num_seqs=args.batch, max_model_len=2048,
                  adaptive_drafting=adaptive)  # fmt: skip
        modes.append((name, llm))
    texts = [item["prompt"] for item in read(())]
    table = [["step", "T", "steps", *(f"{phase} us" for phase in PHASES), "overhead", "drafting"]]
    for temperature in (0.0, 0.8):
        for name, llm in modes:
            rows(llm, name, texts[:1], temperature, 4)  # warms up
            batch = [texts[i % args.prompts] for i in range(max(args.batch, args.prompts))]
            table += rows(llm, name, batch, temperature, args.max_tokens)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *numbers in table:
        cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        print("  ".join([name.ljust(widths[0]), *cells]))


if __name__ == "__main__":
    main()
