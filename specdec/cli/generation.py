"""Running prompts for the command line: one engine, streamed or in a batch, with a progress bar for many."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

from specdec.config.speculative import SpeculativeConfig

PROGRESS_FROM = 2  # prompts; a single one streams


def sampling_params(config: SpeculativeConfig) -> Any:
    """The file's ``sampling:`` section as ``SamplingParams``."""
    from specdec.engine.sampling_params import SamplingParams

    given = {name: value for name, value in config.sampling.to_dict().items() if value is not None}
    return SamplingParams(**given)


def load(config: SpeculativeConfig, speculate: bool) -> Any:
    """The engine of a configuration; without speculation only the target is loaded."""
    from specdec.engine.llm import LLM

    return LLM(speculative_config=config, speculate=speculate)


def choose(llm: Any, params: Any, speculate: bool) -> Any:
    """The same parameters with drafting on or off."""
    if llm.speculator is None:
        return replace(params, num_speculative_tokens=None)
    return params if speculate else replace(params, num_speculative_tokens=0)


def run_prompts(
    llm: Any, prompts: list[Any], params: Any, speculate: bool, *, chat: bool, stream: bool
) -> tuple[list[Any], float]:
    """(outputs in order, seconds): text is written to standard output as it comes when ``stream``."""
    chosen = choose(llm, params, speculate)
    use_chat = chat and bool(getattr(llm.tokenizer, "chat_template", None))
    start = time.perf_counter()
    if stream and len(prompts) == 1 and chosen.n == 1:
        for delta in llm.stream(prompts[0], chosen, use_chat=use_chat):
            sys.stdout.write(delta.text)
            sys.stdout.flush()
        print()
        return [llm.last_output], time.perf_counter() - start
    progress = _Progress(len(prompts) * chosen.n) if len(prompts) >= PROGRESS_FROM else None
    outputs = llm.generate(prompts, chosen, use_chat=use_chat, on_step=progress)
    seconds = time.perf_counter() - start
    if progress is not None:
        progress.close()
    if stream:
        for number, output in enumerate(outputs):
            for completion in output.outputs:
                print(f"{'' if number == 0 else chr(10)}[{number + 1}] {completion.text}")
    return outputs, seconds


class _Progress:
    """One line on standard error with finished requests and tokens a second; silent when it is not a terminal."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.tokens, self.start = total, 0, 0, time.perf_counter()
        self.shown = sys.stderr.isatty()

    def __call__(self, engine: Any, moved: list[Any]) -> None:
        self.done += sum(request.finished for request in moved)
        self.tokens = self.tokens + len(moved)
        if not self.shown:
            return
        rate = sum(r.num_output for r in engine.running) / max(time.perf_counter() - self.start, 1e-9)
        print(f"\r{self.done}/{self.total} requests, {rate:.0f} running tokens/s ", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr)
