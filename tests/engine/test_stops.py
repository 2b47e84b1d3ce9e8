"""Ends of requests inside emitted blocks, and text that streams without splitting characters or stop strings."""

from __future__ import annotations

import random

import pytest

from specdec.engine.sampling.detokenizer import Detokenizer
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.engine.sampling.stops import Cut, StopChecker

EOS = 0


class Bytes:
    """One token a byte; 0 is a special token without text."""

    def decode(self, ids, skip_special_tokens=True, **_):
        keep = [i for i in ids if i != EOS] if skip_special_tokens else [ord("$") if i == EOS else i for i in ids]
        return bytes(keep).decode("utf-8", errors="replace")


def checker(prompt: bytes = b"hi", max_model_len: int = 1000, **params) -> StopChecker:
    return StopChecker(SamplingParams(**params), list(prompt), max_model_len, [EOS], Bytes())


def test_a_block_is_cut_at_eos() -> None:
    stop = checker()
    assert stop.push(list(b"ab")) == Cut(2)
    assert stop.push([*b"cd", EOS, *b"ef"]) == Cut(3, "stop", None)
    assert stop.text == "abcd"


def test_ignored_eos_and_min_tokens() -> None:
    assert checker(ignore_eos=True).push([EOS, *b"ab"]) == Cut(3)
    assert checker(min_tokens=3).push([EOS, *b"a", EOS, *b"b"]) == Cut(3, "stop", None)


def test_stop_ids_are_kept_but_not_shown() -> None:
    stop = checker(stop_token_ids=[ord("c")])
    assert stop.push(list(b"abcd")) == Cut(3, "stop", ord("c"))
    assert stop.text == "ab"
    shown = checker(stop_token_ids=[ord("c")], include_stop_str_in_output=True)
    shown.push(list(b"abcd"))
    assert shown.text == "abc"


@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_a_stop_string_across_token_and_block_borders(block: int) -> None:
    stop, tokens, streamed = checker(stop=["END", "ENOUGH"], max_tokens=50), list(b"one EN END two"), ""
    kept = 0
    for i in range(0, len(tokens), block):
        cut = stop.push(tokens[i : i + block])
        kept += cut.kept
        assert stop.streamable_text.startswith(streamed)
        streamed = stop.streamable_text
        assert "END" not in streamed
        if cut.finish_reason:
            break
    assert (cut.finish_reason, cut.stop_reason) == ("stop", "END")
    assert kept == len("one EN END")
    assert stop.text == streamed == "one EN "


def test_the_stop_string_may_stay() -> None:
    stop = checker(stop="b", include_stop_str_in_output=True)
    assert stop.push(list(b"abc")) == Cut(2, "stop", "b")
    assert stop.text == "ab"


def test_a_tail_that_may_begin_a_stop_string_is_held_back() -> None:
    stop = checker(stop=["\n\nUser:"])
    stop.push(list(b"fine\n\nUse"))
    assert stop.streamable_text == "fine"
    stop.push(list(b"d"))
    assert stop.streamable_text == "fine\n\nUsed"


def test_lengths() -> None:
    stop = checker(max_tokens=3)
    assert stop.tokens_left == 3
    assert stop.push(list(b"abcde")) == Cut(3, "length")
    assert (stop.text, stop.tokens_left) == ("abc", 0)
    assert checker(max_tokens=None, max_model_len=4).push(list(b"abcde")) == Cut(2, "length")
    assert checker(max_tokens=2).push([*b"a", EOS]) == Cut(2, "stop", None)
    assert checker(max_tokens=2, stop="ab").push(list(b"abc")) == Cut(2, "stop", "ab")


def test_text_never_splits_a_character() -> None:
    text = "naïve 漢字 🙂 end"
    stop = checker(max_tokens=100)
    for byte in text.encode():
        stop.push([byte])
        assert text.startswith(stop.streamable_text)
    assert stop.text == text
    broken = checker(max_tokens=2)
    broken.push(list("🙂".encode()))
    assert broken.text == "\ufffd"


def test_pieces_equal_the_whole_decode() -> None:
    rng = random.Random(0)
    for skip in (True, False):
        ids = [rng.choice([EOS, *"aé漢".encode()]) for _ in range(80)]
        detokenizer = Detokenizer(Bytes(), list(b"prompt"), skip_special_tokens=skip)
        pieces = "".join([detokenizer.push(i) for i in ids] + [detokenizer.flush()])
        assert pieces == Bytes().decode(ids, skip_special_tokens=skip)


def test_without_a_tokenizer_there_is_no_text() -> None:
    stop = StopChecker(SamplingParams(max_tokens=4), [1], 100, [EOS])
    assert stop.push([5, 6, EOS]) == Cut(3, "stop", None)
    assert stop.text == ""
