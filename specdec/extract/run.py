"""Runs a target over texts until each has its file; a later run makes only what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specdec.engine.llm import LLM
from specdec.engine.prompts import Prompt
from specdec.engine.requests import Request
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import EngineError, RequestError
from specdec.extract.texts import Text, text_of
from specdec.speculators.extract_hidden_states import ExtractHiddenStatesSpeculator


@dataclass
class Extraction:
    """What a run did, by the index of the prompt."""

    written: dict[int, int] = field(default_factory=dict)  # -> tokens
    kept: list[int] = field(default_factory=list)  # had their files already
    failed: dict[int, str] = field(default_factory=dict)  # -> why


def extract(
    llm: LLM,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    use_chat: bool = False,
    prompt_only: bool = False,
    on_step: Callable[[Extraction, int], None] | None = None,
) -> Extraction:
    """Write a file for each prompt that has none yet, numbered by its place in ``prompts``.

    The target answers the prompts as ``params`` say, and the answers are what a trainer learns from. Conversations
    that are answered, and with ``prompt_only`` all prompts, are only read; of a prompt that says nothing else, every
    token is learned then. ``on_step(extraction, tokens)`` is called after every step with the tokens read so far.

    Raises ``EngineError`` for an engine that extracts nothing, and for a folder that holds other texts at these places.
    """
    speculator = llm.speculator
    if not isinstance(speculator, ExtractHiddenStatesSpeculator):
        raise EngineError("this engine writes no hidden states; configure it with a method that does")
    if params.n != 1:
        raise EngineError(f"sampling.n is {params.n}; a prompt has one file, so set it to 1")
    done, requests = Extraction(), []
    for index, prompt in enumerate(prompts):
        try:
            text = text_of(prompt, llm.tokenizer, use_chat)
        except RequestError as error:
            done.failed[index] = str(error)
            continue
        if index in speculator.folder.done:
            _check_same(speculator, index, text)
            done.kept.append(index)
        else:
            request = _submit(llm, speculator, index, text, params, prompt_only)
            requests.append((index, request))
    try:
        _run(llm, speculator, requests, done, on_step)
    finally:
        for _, request in requests:
            llm.engine.abort(request)
    return done


def _submit(
    llm: LLM, speculator: ExtractHiddenStatesSpeculator, index: int, text: Text, params: SamplingParams, reads: bool
) -> Request:
    mask = text.loss_mask
    if reads and mask is None:
        mask = [1] * len(text.token_ids)
    if reads or text.is_answered:  # the one token that a request must emit is never consumed, so it is not written
        params = params.replace(max_tokens=1)
    request = llm.engine.add(text.token_ids, params)
    if not request.finished:
        speculator.upcoming.append((index, mask))
    return request


def _check_same(speculator: ExtractHiddenStatesSpeculator, index: int, text: Text) -> None:
    held = speculator.folder.token_ids(index)
    if held[: len(text.token_ids)] != text.token_ids:
        file = speculator.folder.folder / speculator.folder.done[index]
        raise EngineError(f"{file} was made of another text than prompt {index}; choose another folder or remove it")


def _run(
    llm: LLM,
    speculator: ExtractHiddenStatesSpeculator,
    requests: Sequence[tuple[int, Request]],
    done: Extraction,
    on_step: Callable[[Extraction, int], None] | None,
) -> None:
    place = {id(request): index for index, request in requests}
    tokens = 0

    def settle(request: Request) -> None:
        index = place[id(request)]
        reason = request.error or speculator.failed.get(index)
        if reason is not None:
            done.failed[index] = reason
        else:
            done.written[index] = len(request.token_ids) - 1

    for _, request in requests:
        if request.finished:
            settle(request)
    while llm.engine.has_unfinished:
        for request in llm.engine.step():
            if request.finished and id(request) in place:
                settle(request)
                tokens += len(request.token_ids) - 1
        if on_step is not None:
            on_step(done, tokens + sum(request.num_computed for request in llm.engine.running))
