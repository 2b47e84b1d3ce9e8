"""The Python entry to the embedded engine.

``LLM(model=..., speculative_config=...)`` loads a target and its speculator; ``generate``, ``chat``, ``stream`` and
``submit`` run requests, from any number of threads and event loops at the same time. ``llm.engine`` is the
continuous-batching core for callers that drive it themselves (``add``, ``step``, ``abort``) while none of these runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec.config.final.speculative_config import Resolution, SpeculativeConfig
from specdec.engine.core import Engine
from specdec.engine.front import Front
from specdec.engine.handle import Handle, Submission
from specdec.engine.outputs import Delta, RequestOutput
from specdec.engine.prompts import Prompt, tokenize
from specdec.engine.report import labels
from specdec.engine.requests import Request, RequestStates
from specdec.engine.runner import Runner
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.engine.setup import build_controller, build_verifier, resolve_speculative
from specdec.errors import EngineError, RequestError
from specdec.model.accelerate import accelerate as accelerate_in_place
from specdec.model.memory import choose_max_model_len
from specdec.model.target import load_target, prepare_target
from specdec.speculators.init import init_speculator

SpeculativeSetting = (
    Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | os.PathLike[str] | SpeculativeConfig | Resolution | None
)
DEFAULT_MAX_NUM_SEQS = 8
DEFAULT_MAX_BATCHED_TOKENS = 2048


class LLM:
    """A target on one device, with or without a speculator.

    Args:
        model: a directory of safetensors, a .gguf file, a hub id in the local cache, a packaged model name, or a
            transformers model in memory. None takes ``target.model`` of the configuration.
        speculative_config: None (plain decoding), the ``speculative:`` block (a dict, or a list for a chain), the path
            of a configuration file, or what ``specdec.resolve`` returned.
        max_model_len: longest prompt plus output; None = as long as the target allows and half the free memory holds.
        max_num_seqs: requests that run together. max_num_batched_tokens: prompt tokens of one prefill forward.
        compile: False keeps decode steps out of CUDA graphs and, on the CPU, leaves a loaded target as transformers
            runs it, as ``accelerate`` = False does; a model in memory is never changed.
        adaptive_drafting: False always drafts k tokens, even where that does not pay.
        speculate: False takes the settings of ``speculative_config`` but decodes the target plainly.
        verifier, speculator, controller: ready-made parts, instead of those the configuration names; a ready-made
            speculator always drafts k tokens unless a controller comes with it.

    Raises ``EngineError`` (a ``ValueError``) or ``ConfigError``; the message is complete.
    """

    def __init__(
        self,
        model: Any = None,
        speculative_config: SpeculativeSetting = None,
        *,
        dtype: Any = None,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        seed: int | None = None,
        device: Any = None,
        tokenizer: Any = None,
        compile: bool | None = None,
        accelerate: bool = True,
        adaptive_drafting: bool = True,
        speculate: bool = True,
        verifier: Any = None,
        speculator: Any = None,
        controller: Any = None,
    ) -> None:
        given = {"dtype": dtype, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs, "seed": seed}
        given |= {"max_num_batched_tokens": max_num_batched_tokens, "device": device, "compile": compile}
        config, settings = resolve_speculative(model, speculative_config, given, speculate)
        self.config = config
        model = model if model is not None else settings.get("model")
        if model is None:
            raise EngineError("no target: pass model=..., or a configuration with target.model")
        slots = settings.get("max_num_seqs", DEFAULT_MAX_NUM_SEQS)
        batched = settings.get("max_num_batched_tokens", DEFAULT_MAX_BATCHED_TOKENS)
        sizes = {
            "max_num_seqs": slots,
            "max_num_batched_tokens": batched,
            "max_model_len": settings.get("max_model_len"),
        }
        for name, value in sizes.items():
            if value is not None and (not isinstance(value, int) or value < 1):
                raise EngineError(f"{name} is {value!r}; allowed: an integer of at least 1")
        tokenizer = tokenizer if tokenizer is not None else settings.get("tokenizer")
        where, compiled = settings.get("device") or "auto", settings.get("compile", True)
        if isinstance(model, (str, Path)):
            kind = settings.get("dtype") or "auto"
            self.target = load_target(
                model, dtype=kind, device=where, tokenizer=tokenizer, revision=settings.get("revision")
            )
            if accelerate and compiled and self.target.device.type == "cpu":
                accelerate_in_place(self.target.model, max_batch=slots)
        else:
            self.target = prepare_target(model, device=where, tokenizer=tokenizer)
        self.tokenizer = self.target.tokenizer
        self.max_model_len = choose_max_model_len(
            self.target,
            settings.get("max_model_len"),
            slots,
            settings.get("gpu_memory_utilization", 1.0),
            config.num_speculative_tokens if config is not None else 0,
        )
        states = RequestStates(slots, self.max_model_len, self.target.device)
        if speculator is None and config is not None:
            speculator = init_speculator(config, self.target.device, states)
            if controller is None:
                k, always = speculator.num_speculative_tokens, not adaptive_drafting
                controller = build_controller(k, config, self.target, always)
        verifier = verifier or build_verifier(config)
        runner = Runner(self.target, states, verifier, speculator, controller, compiled)
        if speculator is not None:
            speculator.load(self.target.handle(self.max_model_len, runner.cache, runner.drafts))
        self.engine = Engine(self.target, runner, states, settings.get("seed") or 0, batched)
        self.engine.metrics.labels |= labels(config)
        self.front = Front(self.engine, config)
        self.last_output: RequestOutput | None = None

    @property
    def speculator(self) -> Any:
        return self.engine.runner.speculator

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_chat: bool = False,
        on_step: Callable[[Engine, list[Request]], None] | None = None,
    ) -> list[RequestOutput]:
        """Run prompts (text, token ids, or ``{"prompt": ...}`` / ``{"prompt_token_ids": ...}``) to their ends.

        One ``SamplingParams`` for all or one per prompt. ``use_chat`` wraps text in the chat template. A prompt that
        cannot run gets an output with ``error`` set; the others are not affected. Results are in order.
        ``on_step(engine, moved)`` is called, in the engine's thread, after every step that moved some of them.
        """
        single = isinstance(prompts, (str, Mapping)) or (bool(prompts) and isinstance(prompts[0], int))
        listed: list[Prompt] = [prompts] if single else list(prompts)  # type: ignore[list-item]
        params = self._params_for(listed, sampling_params)
        submissions = [self._submission(one, wanted, use_chat) for one, wanted in zip(listed, params, strict=True)]
        handle = self.front.submit(submissions, deltas=False, on_step=on_step)
        try:
            return handle.result()
        finally:
            handle.cancel()

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **options: Any,
    ) -> list[RequestOutput]:
        """Like ``generate`` for conversations: one list of ``{"role", "content"}``, or several."""
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
        return self.generate([{"messages": c} for c in conversations], sampling_params, **options)

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, *, use_chat: bool = False
    ) -> Iterator[Delta]:
        """Pieces of one prompt's completions as they come; closing the iterator aborts it.

        A piece holds whole tokens and exactly their text: tokens are held back while their text lacks bytes or may turn
        out to begin a stop string. The last piece of a completion has a ``finish_reason``. The engine goes on while the
        next piece is waited for, or for another caller. ``llm.last_output`` is the whole output of the stream that
        ended last.
        """
        handle = self.front.submit([self._submission(prompt, sampling_params, use_chat)], eager=False)
        try:
            yield from handle
        finally:
            handle.cancel()
            self.last_output = next(iter(handle.outputs()), None)

    def submit(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        use_chat: bool = False,
        request_id: str | None = None,
    ) -> Handle:
        """Run one prompt in the background and return at once; the handle gives its pieces, its output, and ends it.

        For servers: ``async for delta in handle``, ``await handle.finished()``, ``handle.cancel(wait=False)``.
        """
        return self.front.submit([self._submission(prompt, sampling_params, use_chat, request_id)])

    def close(self) -> None:
        """End all requests, the engine's thread and the speculator; nothing can be submitted afterwards."""
        self.front.close()
        if self.speculator is not None:
            self.speculator.close()

    def _params_for(self, prompts: Sequence[Prompt], given: Any) -> list[SamplingParams]:
        if given is None:
            given = SamplingParams()
        if isinstance(given, SamplingParams):
            return [given] * len(prompts)
        params = list(given)
        if len(params) != len(prompts):
            raise EngineError(f"{len(params)} sampling parameters for {len(prompts)} prompts; give one, or one each")
        return params

    def _submission(
        self, prompt: Prompt, params: SamplingParams | None, use_chat: bool, request_id: str | None = None
    ) -> Submission:
        """A prompt as token ids, or why there are none."""
        params = SamplingParams() if params is None else params
        if not isinstance(params, SamplingParams):
            raise EngineError(f"sampling parameters must be SamplingParams, not {type(params).__name__}")
        text = prompt if isinstance(prompt, str) else prompt.get("prompt") if isinstance(prompt, Mapping) else None
        try:
            return Submission(tokenize(prompt, self.tokenizer, use_chat), params, text, request_id)
        except RequestError as error:
            return Submission([], params, text, request_id, failure=str(error))
