"""Running prompts for the command line: one engine, streamed or in a batch, with a progress bar for many."""

from __future__ import annotations

import atexit
import gc
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specdec.cli.progress import GenerationProgress
from specdec.config.final.speculative_config import SpeculativeConfig

PROGRESS_FROM = 2  # requests; a single one streams


def sampling_params(config: SpeculativeConfig) -> Any:
    """The file's ``sampling:`` section as ``SamplingParams``."""
    from specdec.engine.sampling.sampling_params import SamplingParams

    given = {name: value for name, value in config.sampling.to_dict().items() if value is not None}
    return SamplingParams(**given)


def load(config: SpeculativeConfig, speculate: bool) -> Any:
    """The engine of a configuration; without speculation only the target is loaded.

    For a process that is a command: see ``light_imports``.
    """
    from specdec_kernels.cpu.build import build_in_background

    from specdec.model.load.light_imports import light_imports
    from specdec.model.load.locate import locate

    if find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    if model := config.target.get("model"):
        locate(model, config.target.get("revision"))  # a name that leads nowhere is told before seconds of imports
    gc.disable()  # imports and weights make many objects, and all of them stay
    try:
        if may_run_on_cpu(config.engine.get("device")):
            build_in_background()
        with light_imports():
            from specdec.engine.llm import LLM

            return LLM(speculative_config=config, speculate=speculate)
    finally:
        gc.freeze()
        atexit.register(_thaw)
        gc.enable()


def _thaw() -> None:
    """Let the collector see everything at exit, where a library would report what stays as leaked; it takes a second."""
    if "triton" in sys.modules:
        gc.unfreeze()


def may_run_on_cpu(device: str | None) -> bool:
    """Whether the engine may end up on the CPU; asks the system, because asking torch takes a second."""
    return device == "cpu" or (device in (None, "auto") and not Path("/dev/nvidiactl").exists())


def choose(llm: Any, params: Any, speculate: bool) -> Any:
    """The same parameters with drafting on or off."""
    if llm.speculator is None:
        return replace(params, num_speculative_tokens=None)
    return params if speculate else replace(params, num_speculative_tokens=0)


def run_prompts(
    llm: Any, prompts: list[Any], params: Any, speculate: bool, *, chat: bool, stream: bool, label: str | None = None
) -> tuple[list[Any], float]:
    """(outputs in order, seconds): text is written to standard output as it comes when ``stream``.

    With a ``label`` the progress of several requests is shown under that name.
    """
    chosen = choose(llm, params, speculate)
    use_chat = chat and bool(getattr(llm.tokenizer, "chat_template", None))
    start = time.perf_counter()
    if stream and len(prompts) == 1 and chosen.n == 1:
        for delta in llm.stream(prompts[0], chosen, use_chat=use_chat):
            sys.stdout.write(delta.text)
            sys.stdout.flush()
        print()
        return [llm.last_output], time.perf_counter() - start
    requests = len(prompts) * chosen.n
    progress = GenerationProgress(requests, label) if label is not None and requests >= PROGRESS_FROM else None
    try:
        outputs = llm.generate(prompts, chosen, use_chat=use_chat, on_step=progress)
    finally:
        if progress is not None:
            progress.close()
    seconds = time.perf_counter() - start
    if stream:
        for number, output in enumerate(outputs):
            for completion in output.outputs:
                print(f"{'' if number == 0 else chr(10)}[{number + 1}] {completion.text}")
    return outputs, seconds
