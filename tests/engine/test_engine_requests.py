"""Requests in a batch: independence, errors, aborts, streams, broken speculators."""

from __future__ import annotations

import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import EngineError, OutOfMemory

PROMPTS = [[3, 14, 15, 9, 2, 6, 5], [31], list(range(10, 30)), [8, 8, 8, 8]]


def repeat(known, k):
    return known[-k:]


def texts(outputs):
    return [c.token_ids for o in outputs for c in o.outputs]


PARAMS = [
    SamplingParams(temperature=0.7, seed=5, max_tokens=14),
    SamplingParams(temperature=0.0, max_tokens=9),
    SamplingParams(temperature=1.3, top_k=9, max_tokens=17, seed=6, repetition_penalty=1.2),
    SamplingParams(temperature=0.9, top_p=0.8, max_tokens=12, seed=7, num_speculative_tokens=1),
]


def test_a_batch_gives_what_each_request_gives_alone(tiny, scripted):
    model = tiny("qwen2")

    def run(prompts, params, slots):
        llm = LLM(model, speculator=scripted(repeat, k=3), max_num_seqs=slots, max_model_len=64)
        return texts(llm.generate(prompts, params))

    alone = [run([p], [sp], 1)[0] for p, sp in zip(PROMPTS, PARAMS, strict=True)]
    assert run(PROMPTS, PARAMS, 4) == alone
    assert run(PROMPTS[::-1], PARAMS[::-1], 2) == alone[::-1]


def test_seeds_given_and_derived(tiny):
    llm = lambda seed: LLM(tiny("llama"), seed=seed, max_model_len=64)  # noqa: E731
    hot = SamplingParams(temperature=2.0, max_tokens=12)
    first, again, other = (texts(llm(s).generate([[1, 2]] * 2, hot)) for s in (3, 3, 4))
    assert first == again != other
    assert first[0] != first[1]  # same prompt, another request number
    fixed = hot.replace(seed=11)
    assert texts(llm(3).generate([1, 2], fixed)) == texts(llm(4).generate([1, 2], fixed))


def test_n_completions_differ_and_belong_together(tiny, scripted):
    llm = LLM(tiny("llama"), speculator=scripted(repeat), max_num_seqs=2, max_model_len=64)
    output = llm.generate([[1, 2], [3]], SamplingParams(temperature=1.5, n=3, max_tokens=8, seed=1))
    assert [[c.index for c in o.outputs] for o in output] == [[0, 1, 2]] * 2
    assert len({tuple(c.token_ids) for c in output[0].outputs}) == 3


def test_bad_requests_carry_their_error_and_take_nobody_down(tiny, scripted):
    llm = LLM(tiny("llama"), speculator=scripted(repeat), max_num_seqs=4, max_model_len=32)
    greedy = SamplingParams(temperature=0.0, max_tokens=6)
    prompts = [[1, 2], [], list(range(32)), [99], "text", [1, 2], {"messages": []}, {"x": 1}]
    params = [greedy] * 5 + [greedy.replace(stop_token_ids=(61,))] + [greedy] * 2
    outputs = llm.generate(prompts, params)
    assert outputs[0].error is None and len(outputs[0].outputs[0].token_ids) == 6
    for output, words in zip(
        outputs[1:],
        ["empty", "32 tokens", "token id 99", "no tokenizer", "stop_token_ids", "chat template", "needs one of prompt"],
        strict=True,
    ):
        assert output.outputs[0].finish_reason == "error" and words in output.error
    assert texts(llm.generate([[1, 2]], greedy)) == [outputs[0].outputs[0].token_ids]


def test_a_failing_forward_ends_only_the_requests_that_cannot_run(tiny, scripted):
    llm = LLM(tiny("llama"), speculator=scripted(repeat), max_num_seqs=4, max_model_len=32)
    forward = llm.target.model.forward

    def fragile(*args, **kwargs):
        if (kwargs["input_ids"] == 13).any():
            raise RuntimeError("cosmic ray")
        return forward(*args, **kwargs)

    llm.target.model.forward = fragile
    try:
        greedy = SamplingParams(temperature=0.0, max_tokens=5, bad_words_token_ids=[[13]])
        outputs = llm.generate([[1, 2], [13, 4], [5, 6]], greedy)
    finally:
        llm.target.model.forward = forward
    assert [o.error for o in outputs] == [None, "cosmic ray", None]
    assert llm.engine.states.num_free == 4


class Raising:
    """A constraint of the caller that fails in its own way once two tokens are out."""

    def __init__(self, error):
        self.error = error

    def allowed(self, prefix):
        if len(prefix) >= 2:
            raise self.error
        return None


@pytest.mark.parametrize(
    "error", [KeyError("x"), TypeError("x"), ZeroDivisionError("x"), AttributeError("x")], ids=repr
)
def test_a_constraint_that_raises_ends_only_its_own_request(error, tiny, scripted):
    llm = LLM(tiny("llama"), speculator=scripted(repeat), max_num_seqs=4, max_model_len=32)
    greedy = SamplingParams(temperature=0.0, max_tokens=6)
    params = [greedy, greedy.replace(constraint=Raising(error)), greedy]
    good, bad, other = llm.generate([[1, 2], [3, 4], [5, 6]], params)
    assert type(error).__name__ in bad.error and bad.outputs[0].finish_reason == "error"
    assert len(bad.outputs[0].token_ids) <= 2  # drafts ask about prefixes further on
    assert texts([good, other]) == texts(llm.generate([[1, 2], [5, 6]], greedy))


@pytest.mark.parametrize("prompt", [5, None, 3.5, {"prompt": 5}, {"prompt_token_ids": None}, b"ab"], ids=repr)
def test_a_prompt_of_another_type_is_an_error_of_that_request(prompt, tiny):
    llm = LLM(tiny("llama"), max_model_len=32)
    good, bad = llm.generate([[1, 2], prompt], SamplingParams(temperature=0.0, max_tokens=4))
    assert "must be text or a list of token ids" in bad.error and len(good.outputs[0].token_ids) == 4
    assert not llm.engine.has_unfinished


def test_nan_weights_are_an_error_of_the_request(tiny):
    from copy import deepcopy

    model = deepcopy(tiny("llama"))
    model.lm_head.weight.fill_(float("nan"))
    output = LLM(model, max_model_len=32).generate([1, 2], SamplingParams(temperature=0.0))[0]
    assert "no finite logit" in output.error


def test_abort_frees_the_slot_and_keeps_what_was_emitted(tiny, scripted):
    llm = LLM(tiny("llama"), speculator=scripted(repeat), max_num_seqs=2, max_model_len=64)
    params = SamplingParams(temperature=0.0, max_tokens=40)
    whole = texts(llm.generate(PROMPTS[:3], params))
    requests = [llm.engine.add(p, params) for p in PROMPTS[:3]]
    for _ in range(4):
        llm.engine.step()
    llm.engine.abort(requests[0])  # running, in the first row: the second one's row moves
    llm.engine.abort(requests[0])
    while llm.engine.has_unfinished:
        llm.engine.step()
    assert [r.finish_reason for r in requests] == ["abort", "length", "length"]
    assert [r.output_token_ids for r in requests[1:]] == whole[1:]
    assert requests[0].output_token_ids == whole[0][: requests[0].num_output] != []
    waiting = llm.engine.add([1], params)
    llm.engine.abort(waiting)
    assert waiting.finish_reason == "abort" and not llm.engine.has_unfinished


def test_stream_gives_the_output_in_pieces(tiny, scripted):
    llm = LLM(tiny("llama"), speculator=scripted(repeat), max_model_len=64)
    params = SamplingParams(temperature=0.0, max_tokens=15)
    deltas = list(llm.stream([1, 2], params))
    assert [t for d in deltas for t in d.token_ids] == llm.generate([1, 2], params)[0].outputs[0].token_ids
    assert [d.finish_reason for d in deltas].count("length") == 1 and deltas[-1].finish_reason == "length"


def test_closing_a_stream_aborts_it(tiny):
    llm = LLM(tiny("llama"), max_model_len=64)
    stream = llm.stream([1, 2], SamplingParams(temperature=0.0, max_tokens=30))
    next(stream)
    stream.close()
    assert not llm.engine.has_unfinished and llm.last_output.outputs[0].finish_reason == "abort"


@pytest.mark.parametrize(
    "script, words",
    [(lambda known, k: [61], "drafted token 61"), (lambda known, k: 1 / 0, "division by zero")],
)
def test_a_broken_speculator_is_loud_and_leaves_a_usable_engine(script, words, tiny, scripted):
    llm = LLM(tiny("llama"), speculator=scripted(script), max_model_len=64)
    with pytest.raises((EngineError, ZeroDivisionError), match=words):
        llm.generate([[1, 2], [3]], SamplingParams(temperature=0.0))
    assert not llm.engine.has_unfinished
    output = llm.generate([1, 2], SamplingParams(temperature=0.0, num_speculative_tokens=0))[0]
    assert output.error is None


def test_methods_that_draft_nothing(tiny, scripted):
    speculator = scripted(lambda known, k: pytest.fail("asked to draft"), capabilities={"proposes_draft_tokens": False})
    llm = LLM(tiny("llama"), speculator=speculator, max_model_len=64)
    completion = llm.generate([1, 2], SamplingParams(temperature=0.0, max_tokens=5))[0].outputs[0]
    assert len(completion.token_ids) == 5 and completion.speculation.drafted == 0
    assert sum(len(b.token_ids) for b in speculator.batches) == 2 + 4  # every token but the last, which nobody computed


def test_logprobs_belong_to_the_emitted_tokens(tiny, scripted):
    model = tiny("llama")
    llm = LLM(model, speculator=scripted(repeat), max_model_len=64)
    completion = llm.generate([1, 2], SamplingParams(temperature=0.0, max_tokens=9, logprobs=2))[0].outputs[0]
    ids = torch.tensor([[1, 2, *completion.token_ids]])
    want = model(ids).logits[0, 1:-1].log_softmax(-1)
    assert [entry.token_id for entry in completion.logprobs] == completion.token_ids
    for entry, row in zip(completion.logprobs, want, strict=True):
        assert entry.logprob == pytest.approx(float(row[entry.token_id]), abs=1e-4)
        assert entry.rank == 1 and list(entry.top.values()) == pytest.approx(row.topk(2).values.tolist(), abs=1e-4)


class Halving:
    """A controller that asks for fewer and fewer drafts, and remembers what it saw."""

    def __init__(self):
        self.seen = []

    def finish(self, request):
        self.finished = request

    def choose(self, request, batch_size, most):
        assert batch_size == 1
        return min(most, 4 // (1 + len(self.seen)))

    def trim(self, requests):
        self.rows = sum(1 + len(request.drafts) for request in requests)

    def observe(self, request, drafted, accepted):
        assert self.rows == drafted + 1
        self.seen.append((drafted, accepted))

    def observe_forward(self, requests, rows, seconds, draft_seconds):
        assert (requests, rows) == (1, self.rows)
        assert seconds > 0 and draft_seconds >= 0


def test_a_controller_decides_how_many_drafts(tiny, scripted):
    controller = Halving()
    llm = LLM(tiny("llama"), speculator=scripted(repeat), controller=controller, max_model_len=64)
    llm.generate([1, 2, 1, 2], SamplingParams(temperature=0.0, max_tokens=12))
    assert [drafted for drafted, _ in controller.seen[:5]] == [4, 2, 1, 1, 0]


def test_what_cannot_start_says_so(tiny):
    with pytest.raises(OutOfMemory, match="lower max_num_seqs or max_model_len"):
        LLM(tiny("llama"), max_num_seqs=10**9)
    with pytest.raises(EngineError, match="max_model_len is 4000; allowed: 2 to 128"):
        LLM(tiny("llama"), max_model_len=4000)
    with pytest.raises(EngineError, match="max_num_seqs is 0"):
        LLM(tiny("llama"), max_num_seqs=0)
    with pytest.raises(EngineError, match="no target"):
        LLM()
    with pytest.raises(EngineError, match="device is 'tpu'"):
        LLM(tiny("llama"), device="tpu")
