"""How drafts will be verified, with every parameter of the mode given its value."""

from __future__ import annotations

import math
from collections.abc import Mapping

from specdec.config.findings.diagnostics import Found, Origin
from specdec.config.language.record import SpeculatorRecord

METHOD, DRAFTS = "rejection_sample_method", "draft_sample_method"
RATES, LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"
WINDOW = "fly_window_size"
MAX_WINDOW = 6
LOSSY = "lossy-method"  # the code of the rule that says a mode is lossy


def verification(record: SpeculatorRecord, options: Mapping[str, Found], k: int, lossy: bool) -> dict[str, Found]:
    """Values of ``config.verification``; ``lossy`` when the record's rule about lossy modes fired."""
    standard = Found("standard", Origin("record", "the only mode"))
    greedy = Found("greedy", Origin("record", "drafts are not drawn from a distribution"))
    values = {METHOD: options.get(METHOD, standard), DRAFTS: options.get(DRAFTS, greedy)}
    mode = values[METHOD].value
    guarantee = "lossy" if lossy else record.guarantee
    values["guarantee"] = Found(guarantee, Origin("derived", f"{mode} verification", inputs=(f"speculative.{METHOD}",)))
    for name, found in options.items():
        if name.startswith(f"{mode}_"):
            values[name] = found
    length = options.get(LENGTH)
    if LENGTH in values and length is not None:
        values[RATES] = Found(
            rates_of(float(length.value), k),
            Origin("derived", "from the mean length", inputs=(f"speculative.{LENGTH}",)),
        )
    if mode == WINDOW.split("_")[0] and WINDOW not in values:
        values[WINDOW] = Found(
            min(MAX_WINDOW, k - 1), Origin("derived", "min(6, k - 1)", inputs=("speculative.num_speculative_tokens",))
        )
    return values


def rates_of(length: float, k: int) -> list[float]:
    """Unconditional acceptance per position with this mean of tokens per round: ones, then the fraction, then zeros."""
    whole = math.floor(length - 1)
    rates = [1.0] * min(whole, k)
    if whole < k:
        rates.append(length - 1 - whole)
    return rates + [0.0] * (k - len(rates))
