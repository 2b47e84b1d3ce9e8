"""What one request asks of sampling; torch-free, so that configurations can be checked with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.engine.sampling.constraints import TokenConstraint

MAX_LOGIT_BIAS = 100.0
BIAS_RANGE = f"numbers from -{MAX_LOGIT_BIAS:g} to {MAX_LOGIT_BIAS:g}"
MAX_SEED = 2**63 - 1
MAX_FACTOR = 1e9  # of logits: products stay far inside float32
MAX_COUNT = 2**31 - 1  # tokens: more than any model's positions
MAX_COMPLETIONS = 1024  # of a prompt: each is a request of its own
MAX_TEXT = 4096  # characters of a stop string or a bad word
# entries of a list: one a token of the largest vocabularies; what every token is compared with stays short
MAX_ITEMS = {"stop": 1024, "bad_words": 1 << 14, "bad_words_token_ids": 1 << 14}
MAX_IDS = 1 << 20
SHOWN = 80  # characters of a value in a message


class SamplingParamsError(ValueError):
    """A sampling parameter is out of range; carries ``field``, ``value``, ``allowed`` and perhaps a ``fix``."""

    def __init__(self, field: str, value: Any, allowed: str, fix: str = "") -> None:
        self.field, self.value, self.allowed, self.fix = field, value, allowed, fix
        super().__init__(f"{shown(field)} is {shown(value, repr)}; allowed: {allowed}" + (f"; {fix}" if fix else ""))


def shown(value: Any, text_of: Callable[[Any], str] = str) -> str:
    """A value in a message: shortened, and whatever it is, something that can be printed."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    try:
        if isinstance(value, Sized) and not isinstance(value, str) and len(value) > SHOWN:
            return f"a {type(value).__name__} of {len(value)} entries"
        text = text_of(value[: SHOWN + 1] if isinstance(value, str) else value)
    except Exception:  # a range beyond 2^63; an integer in a list with more digits than Python prints
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of a request; they hold at every verified row, drafted or not.

    Raises ``SamplingParamsError`` (a ``ValueError``) that names the field, its value and what is allowed.
    """

    n: int = 1  # completions of the prompt
    temperature: float = 1.0  # 0 = greedy
    top_k: int = 0  # 0 or -1 = all
    top_p: float = 1.0
    min_p: float = 0.0  # drop tokens less likely than min_p times the likeliest
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0  # counts prompt and output
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None  # tokenized by the engine, with and without a leading space
    bad_words_token_ids: Sequence[Sequence[int]] | None = None
    min_tokens: int = 0  # no EOS and no stop id before this many output tokens
    max_tokens: int | None = 16  # None = up to max_model_len
    stop: str | Sequence[str] | None = None
    include_stop_str_in_output: bool = False
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None  # None = drawn from the engine's seed and the request's number
    logprobs: int | None = None  # None = none, 0 = the sampled token's only, -1 = the whole vocabulary
    detokenize: bool = True
    skip_special_tokens: bool = True
    constraint: TokenConstraint | None = None  # Python API only: which tokens may come next
    num_speculative_tokens: int | None = None  # None = the configuration's k; 0 = no drafting for this request

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        if isinstance(self.stop, str):
            set_(self, "stop", (self.stop,))
        for name in ("allowed_token_ids", "bad_words", "stop", "stop_token_ids"):
            value = getattr(self, name)
            if value is not None:
                set_(self, name, _tuple(name, value))
        if self.bad_words_token_ids is not None:
            words = _tuple("bad_words_token_ids", self.bad_words_token_ids)
            set_(self, "bad_words_token_ids", tuple(_tuple("bad_words_token_ids", w, MAX_TEXT) for w in words))
        if self.logit_bias is not None:
            set_(self, "logit_bias", _logit_bias(self.logit_bias))
        if _integer(self.top_k) and self.top_k == -1:
            set_(self, "top_k", 0)
        _check(self)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Parameters from plain data (a request body, a YAML block); unknown names are refused."""
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                raise SamplingParamsError(
                    str(name), values[name], "no such parameter", f"did you mean {near[0]}?" if near else ""
                )
        return cls(**values)

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with some parameters changed, checked again."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The parameters that differ from their defaults, as plain data (without the constraint)."""
        defaults = {f.name: f.default for f in fields(self)}
        values = asdict(replace(self, constraint=None))
        return {name: value for name, value in values.items() if value != defaults[name]}

    @property
    def greedy(self) -> bool:
        """True when every token is the argmax of the processed logits."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """True when the logits of a row depend on the counts of earlier tokens."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0

    @property
    def only_temperature(self) -> bool:
        """True when the target's logits need nothing but the temperature (and bookkeeping of lengths and stops)."""
        return (
            not self.has_penalties
            and not (self.top_k or self.min_p or self.logit_bias or self.bad_words or self.bad_words_token_ids)
            and self.top_p >= 1.0
            and self.allowed_token_ids is None
            and self.constraint is None
            and self.min_tokens == 0
        )

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids outside [0, vocab_size); called when a request meets its target."""
        named = {
            "logit_bias": tuple(self.logit_bias or ()),
            "allowed_token_ids": self.allowed_token_ids or (),
            "stop_token_ids": self.stop_token_ids or (),
            "bad_words_token_ids": tuple(t for w in self.bad_words_token_ids or () for t in w),
        }
        for name, ids in named.items():
            for token in ids:
                if not 0 <= token < vocab_size:
                    raise SamplingParamsError(name, token, f"token ids from 0 to {vocab_size - 1} of this target")
        if self.allowed_token_ids is not None and self.bad_words_token_ids:
            single = {w[0] for w in self.bad_words_token_ids if len(w) == 1}
            if set(self.allowed_token_ids) <= single:
                raise SamplingParamsError(
                    "allowed_token_ids",
                    list(self.allowed_token_ids),
                    "a token that bad_words leaves",
                )


def _tuple(name: str, value: Any, most: int | None = None) -> tuple[Any, ...]:
    """A list of known length as a tuple; what is iterated without one may never end."""
    if isinstance(value, (str, bytes, Mapping)) or not (hasattr(value, "__iter__") and hasattr(value, "__len__")):
        raise SamplingParamsError(name, value, "a list")
    most = MAX_ITEMS.get(name, MAX_IDS) if most is None else most
    try:
        count = len(value)
    except OverflowError:  # a range beyond 2^63
        count = most + 1
    if count > most:
        raise SamplingParamsError(name, f"a list of {count} entries", f"at most {most} entries")
    return tuple(value)


def _logit_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise SamplingParamsError("logit_bias", value, "a map from token id to bias")
    if len(value) > MAX_IDS:
        raise SamplingParamsError("logit_bias", value, f"at most {MAX_IDS} entries")
    out: dict[int, float] = {}
    for key, bias in value.items():
        token = key
        if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= len(str(MAX_SEED)):
            token = int(key)  # JSON can only write string keys
        if not _integer(token) or not 0 <= token <= MAX_SEED:
            raise SamplingParamsError("logit_bias", key, "token ids (integers of at least 0) as keys")
        if token in out:
            raise SamplingParamsError("logit_bias", key, "each token id once")
        if not _number(bias) or abs(bias) > MAX_LOGIT_BIAS:
            raise SamplingParamsError(f"logit_bias[{token}]", bias, BIAS_RANGE)
        out[token] = float(bias)
    return out


def _number(value: Any) -> bool:
    """A finite number; an integer beyond what a float holds is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= MAX_SEED


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _between(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: _integer(value) and low <= value <= high


def _or_none(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or test(value)


# field -> (test, what is allowed); None is allowed where the default is None or the type says so
_RANGES: dict[str, tuple[Any, str]] = {
    "n": (_between(1, MAX_COMPLETIONS), f"an integer of at least 1, at most {MAX_COMPLETIONS}"),
    "temperature": (
        lambda v: _number(v) and 0 <= v <= MAX_FACTOR,
        f"a finite number of at least 0 (0 = greedy), at most {MAX_FACTOR:g}",
    ),
    "top_k": (_between(0, MAX_COUNT), "an integer of at least 1, or 0 for all tokens"),
    "top_p": (lambda v: _number(v) and 0 < v <= 1, "a number in (0, 1]"),
    "min_p": (lambda v: _number(v) and 0 <= v <= 1, "a number in [0, 1]"),
    "presence_penalty": (lambda v: _number(v) and -2 <= v <= 2, "a number in [-2, 2]"),
    "frequency_penalty": (lambda v: _number(v) and -2 <= v <= 2, "a number in [-2, 2]"),
    "repetition_penalty": (
        lambda v: _number(v) and 1 / MAX_FACTOR <= v <= MAX_FACTOR,
        f"a number above 0 (1 = none), from {1 / MAX_FACTOR:g} to {MAX_FACTOR:g}",
    ),
    "min_tokens": (_between(0, MAX_COUNT), "an integer of at least 0"),
    "max_tokens": (_or_none(_between(1, MAX_COUNT)), f"an integer of at least 1 (at most {MAX_COUNT}), or null"),
    "seed": (_or_none(_between(-MAX_SEED, MAX_SEED)), "a 64-bit integer, or null"),
    "logprobs": (_or_none(_between(-1, MAX_COUNT)), "an integer of at least 0, -1 for all, or null"),
    "num_speculative_tokens": (_or_none(_between(0, MAX_COUNT)), "an integer of at least 0, or null"),
}


def _check(params: SamplingParams) -> None:
    for name, (test, allowed) in _RANGES.items():
        if not test(getattr(params, name)):
            raise SamplingParamsError(name, getattr(params, name), allowed)
    for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "detokenize"):
        if not isinstance(getattr(params, name), bool):
            raise SamplingParamsError(name, getattr(params, name), "true or false")
    if params.constraint is not None and not callable(getattr(params.constraint, "allowed", None)):
        raise SamplingParamsError("constraint", params.constraint, "an object with allowed(prefix) -> mask, or null")
    for name in ("allowed_token_ids", "stop_token_ids"):
        for token in getattr(params, name) or ():
            if not _integer(token) or token < 0:
                raise SamplingParamsError(name, token, "token ids (integers of at least 0)")
    if params.allowed_token_ids is not None and not params.allowed_token_ids:
        raise SamplingParamsError("allowed_token_ids", [], "at least one token id", "leave it out to allow all tokens")
    for name in ("stop", "bad_words"):
        for text in getattr(params, name) or ():
            if not isinstance(text, str) or not 0 < len(text) <= MAX_TEXT:
                raise SamplingParamsError(name, text, f"non-empty strings of at most {MAX_TEXT} characters")
    for word in params.bad_words_token_ids or ():
        if not word or not all(_integer(t) and t >= 0 for t in word):
            raise SamplingParamsError("bad_words_token_ids", list(word), "non-empty lists of token ids")
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise SamplingParamsError(
            "min_tokens", params.min_tokens, f"at most max_tokens ({params.max_tokens})", "raise max_tokens"
        )
    if params.stop and not params.detokenize:
        raise SamplingParamsError("stop", list(params.stop), "none while detokenize is false", "set detokenize")
    if params.greedy and params.n > 1:
        raise SamplingParamsError("n", params.n, "1 with temperature 0: greedy completions are all equal")
