"""Many callers of one engine: interleaved streams, threads, event loops, failures; everybody gets their own tokens."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import EngineError

PROMPTS = [[1, 2, 1, 2], [9], [30, 31, 32], [5, 5, 5, 5, 5]]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


def repeat(known, k):
    return known[-k:] if len(known) >= k else []


@pytest.fixture
def llm(tiny, scripted):
    return LLM(tiny("llama"), speculator=scripted(repeat), max_num_seqs=3, max_model_len=64)


@pytest.fixture
def alone(llm):
    """The tokens of each prompt, run by itself."""
    return [llm.generate([prompt], GREEDY)[0].outputs[0].token_ids for prompt in PROMPTS]


def tokens(deltas):
    return [token for delta in deltas for token in delta.token_ids]


def test_interleaved_streams_lose_nothing(llm, alone):
    streams = [llm.stream(prompt, GREEDY) for prompt in PROMPTS]
    got = [[] for _ in streams]
    open_ones = set(range(len(streams)))
    while open_ones:
        for i in sorted(open_ones):
            delta = next(streams[i], None)
            if delta is None:
                open_ones.remove(i)
            else:
                got[i].append(delta)
    assert [tokens(deltas) for deltas in got] == alone
    assert all([d.finish_reason for d in deltas][-1] == "length" for deltas in got)


def test_a_stream_beside_generate(llm, alone):
    stream = llm.stream(PROMPTS[0], GREEDY)
    first = next(stream)
    assert [o.outputs[0].token_ids for o in llm.generate(PROMPTS[1:], GREEDY)] == alone[1:]
    assert tokens([first, *stream]) == alone[0]
    assert llm.last_output.outputs[0].token_ids == alone[0]


def test_threads_share_an_engine(llm, alone):
    got = {}

    def run(name, i):
        got[name] = [o.outputs[0].token_ids for o in llm.generate([PROMPTS[i], PROMPTS[-1]], GREEDY)]

    threads = [threading.Thread(target=run, args=(n, n % 4)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {n: [alone[n % 4], alone[3]] for n in range(8)}


def test_tasks_share_an_engine_and_cancel(llm, alone):
    async def read(prompt):
        return tokens([delta async for delta in llm.submit(prompt, GREEDY)])

    async def leave(prompt):
        handle = llm.submit(prompt, GREEDY, request_id="left")
        async for _ in handle:
            break
        (output,) = await handle.finished()
        return output

    async def everything():
        whole = asyncio.gather(*map(read, PROMPTS), llm.submit(PROMPTS[0], GREEDY).finished())
        return await whole, await leave(PROMPTS[1])

    (*read_ones, (output,)), left = asyncio.run(everything())
    assert read_ones == alone and output.outputs[0].token_ids == alone[0]
    assert left.request_id == "left" and left.outputs[0].token_ids == alone[1][: len(left.outputs[0].token_ids)]
    assert not llm.engine.has_unfinished


def test_a_handle_ends_its_requests_only(llm, alone):
    keep, leave = llm.submit(PROMPTS[0], GREEDY), llm.submit(PROMPTS[1], GREEDY.replace(max_tokens=40))
    leave.cancel()
    leave.cancel()
    (output,) = leave.result()
    assert output.outputs[0].finish_reason in ("abort", "length")
    assert keep.result()[0].outputs[0].token_ids == alone[0] and keep.done
    assert keep.result()[0].outputs[0].token_ids == alone[0]  # as often as one asks
    assert llm.front.submit([]).result() == []


def test_waiting_may_have_an_end(llm, monkeypatch):
    step, go = llm.engine.step, threading.Event()
    monkeypatch.setattr(llm.engine, "step", lambda: go.wait() and step())
    handle = llm.submit(PROMPTS[0], GREEDY)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    go.set()
    assert handle.result()[0].outputs[0].finish_reason == "length"


def test_bad_requests_come_back_as_outputs(llm, alone):
    handles = [llm.submit(prompt, GREEDY) for prompt in ([], [999], "text", PROMPTS[0], {"nothing": 1})]
    errors = [handle.result()[0].error for handle in handles]
    for error, words in zip(errors, ("is empty", "token id 999", "no tokenizer", "", "needs one of"), strict=True):
        assert (error is None) if not words else (words in error)
    assert handles[3].result()[0].outputs[0].token_ids == alone[0]
    with pytest.raises(EngineError, match="must be SamplingParams, not dict"):
        llm.submit([1], {"temperature": 0.0})


def test_only_those_hear_of_a_failing_step_whom_it_ended(tiny, scripted):
    """A speculator that fails on one prompt ends the requests of that step, in whichever batch they were."""
    wrong = []

    def script(known, k):
        if known[0] == 7:
            wrong.append(known)
            raise ZeroDivisionError("on purpose")
        return known[-k:]

    llm = LLM(tiny("llama"), speculator=scripted(script), max_num_seqs=2, max_model_len=64)
    bad = llm.submit([7, 7], GREEDY)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        bad.result()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        bad.result()
    assert len(wrong) == 1 and not llm.engine.has_unfinished
    assert llm.generate([8, 7], GREEDY)[0].error is None


def test_a_stuck_engine_tells_everybody(llm, monkeypatch):
    def stuck():
        raise RuntimeError("stuck")

    monkeypatch.setattr(llm.engine, "step", stuck)
    handles = [llm.submit(prompt, GREEDY) for prompt in PROMPTS]
    for handle in handles:
        with pytest.raises(RuntimeError, match="stuck"):
            list(handle)
    monkeypatch.undo()
    assert not llm.engine.has_unfinished and len(llm.generate([1], GREEDY)[0].outputs[0].token_ids) == 24


def test_on_step_runs_inside_and_ends_its_own_call_only(llm, alone):
    other = llm.submit(PROMPTS[1], GREEDY)

    def nosy(engine, moved):
        assert all(r.prompt_token_ids == PROMPTS[0] for r in moved)
        llm.generate([1], GREEDY)

    with pytest.raises(EngineError, match="from inside one of its steps"):
        llm.generate([PROMPTS[0]], GREEDY, on_step=nosy)
    assert other.result()[0].outputs[0].token_ids == alone[1]


def test_on_step_may_abort_whatever_it_likes(llm, alone):
    others = [llm.submit(prompt, GREEDY.replace(max_tokens=40)) for prompt in PROMPTS]

    def ending(engine, moved):
        for request in [*engine.waiting, *engine.running]:
            if request not in moved:
                engine.abort(request)

    assert llm.generate([PROMPTS[0]], GREEDY, on_step=ending)[0].outputs[0].token_ids == alone[0]
    reasons = {handle.result()[0].outputs[0].finish_reason for handle in others}
    assert "abort" in reasons and reasons <= {"abort", "length"}


def test_nobody_else_may_step_a_running_engine(llm):
    seen = []

    def elsewhere(engine, moved):
        def meddle():
            for call in (engine.step, lambda: engine.add([1], GREEDY), lambda: engine.abort(moved[0])):
                with pytest.raises(EngineError, match="runs requests for another thread"):
                    call()
            seen.append(True)

        thread = threading.Thread(target=meddle)
        thread.start()
        thread.join()

    llm.generate([1], GREEDY.replace(max_tokens=2), on_step=elsewhere)
    assert seen == [True, True]
    request = llm.engine.add([1], GREEDY)  # and between calls it is free again
    while not request.finished:
        llm.engine.step()


def test_closing_ends_what_waits(llm, monkeypatch):
    step, inside, go = llm.engine.step, threading.Event(), threading.Event()

    def slow():
        inside.set()
        go.wait()
        return step()

    monkeypatch.setattr(llm.engine, "step", slow)
    handles = [llm.submit(prompt, GREEDY) for prompt in PROMPTS]
    inside.wait()
    threading.Timer(0.05, go.set).start()
    llm.close()
    for handle in handles:
        with pytest.raises(EngineError, match="was closed"):
            handle.result()
    assert not llm.engine.has_unfinished
    with pytest.raises(EngineError, match="is closed"):
        llm.generate([1], GREEDY)


def test_an_engine_that_nobody_holds_goes_with_its_thread(tiny):
    llm = LLM(tiny("llama"), max_model_len=64)
    llm.generate([1], GREEDY)
    stream = llm.stream([1], GREEDY)
    next(stream)
    del stream  # never closed
    engine, thread = weakref.ref(llm.engine), llm.front._owner._thread
    del llm
    gc.collect()
    thread.join(timeout=10)
    assert engine() is None and not thread.is_alive()


class Bytes:
    """One token a byte; 0 is a special token without text."""

    eos_token_id = None

    def decode(self, ids, skip_special_tokens=True, **_):
        return bytes(i for i in ids if i or not skip_special_tokens).decode("utf-8", errors="replace")


def test_text_and_tokens_of_a_stream_advance_together():
    """What was streamed is at any time the text of the tokens that were streamed, whatever is held back."""
    from specdec.engine.handle import take_delta
    from specdec.engine.requests import Request
    from specdec.engine.sampling.stops import StopChecker
    from specdec.engine.state import RequestState

    text = "a naïve ☃ walked \0to the ENdless sea, 🙂🙂 EN the END of it"
    for block in (1, 2, 3, 5, 50):
        params = SamplingParams(stop=["END"], max_tokens=500)
        request = Request("r", 0, [104, 105], params, seed=0, max_total_tokens=1000)
        request.state = RequestState()
        request.state.stops = StopChecker(params, [104, 105], 1000, (), Bytes())
        ids, words, bytes_left = [], "", list(text.encode())
        while not request.finished:
            cut = request.state.stops.push(bytes_left[:block])
            request.token_ids += bytes_left[: cut.kept]
            bytes_left = bytes_left[block:]
            request.finish_reason, request.stop_reason = cut.finish_reason, cut.stop_reason
            delta = take_delta(request)
            ids, words = ids + delta.token_ids, words + delta.text
            if not request.finished:
                assert words == Bytes().decode(ids) and "E" not in words[-1:]
        assert ids == request.output_token_ids and delta.stop_reason == "END"
        assert words == text.replace("\0", "")[: text.replace("\0", "").index("END")]


def test_log_probabilities_are_streamed_with_their_tokens(llm):
    params = GREEDY.replace(logprobs=1)
    deltas = list(llm.stream(PROMPTS[0], params))
    assert all([entry.token_id for entry in d.logprobs] == d.token_ids for d in deltas)
