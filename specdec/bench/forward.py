"""Time one forward by its width, transformers' own against the accelerated one: ``python -m specdec.bench.forward``."""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from specdec.model.accelerate import accelerate, native_stack
from specdec.model.batch import Batch
from specdec.model.kv_cache import SlotCache
from specdec.model.target import Target, load_target, prepare_target

WIDTHS = (1, 2, 4, 6, 8, 9, 13, 16)


def measure(
    forwards: dict[str, Callable[[int, int], None]], widths: Sequence[int], cached: int, repeats: int
) -> dict[str, list[float]]:
    """Median milliseconds per name and width, all forwards of a round one after the other; negative widths are prompts."""
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeats):
        for width in widths:
            for name, run in forwards.items():
                start = time.perf_counter()
                run(abs(width), cached if width > 0 else 0)
                times.setdefault((name, width), []).append(1e3 * (time.perf_counter() - start))
    return {name: [statistics.median(times[name, width]) for width in widths] for name in forwards}


def forward_of(target: Target, capacity: int) -> Callable[[int, int], None]:
    """Runs ``width`` tokens behind ``cached`` ones of one request, all of whose logits are wanted unless it is a prompt."""
    cache = SlotCache(target.layout.num_layers, 1, capacity)

    def run(width: int, cached: int) -> None:
        tokens = [(17 * i) % target.vocab_size for i in range(width)]
        drafts = width - 1 if cached else 0
        target.logits(Batch([], [tokens], [cached], [0], [drafts], [True], cache, target.layout, target.dtype))

    return run


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--cached", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    ours = load_target(args.model, dtype=args.dtype, device="cpu")
    stock = prepare_target(copy.deepcopy(ours.model), device="cpu")
    accelerate(ours.model)
    kind = "one call" if native_stack(ours) is not None else "layer by layer"
    capacity = max(args.cached + max(WIDTHS), args.prompt)
    forwards = {"transformers": forward_of(stock, capacity), "specdec": forward_of(ours, capacity)}
    widths = (*WIDTHS, -args.prompt)
    measure(forwards, widths, args.cached, 1)
    found = measure(forwards, widths, args.cached, args.repeats)
    print(f"{args.dtype}, {torch.get_num_threads()} threads, {args.cached} cached tokens, {kind}; median ms")
    print(f"{'width':14s}", *(f"{w if w > 0 else f'prompt {-w}':>10}" for w in widths))
    for name, row in found.items():
        print(f"{name:14s}", *(f"{value:10.1f}" for value in row))


if __name__ == "__main__":
    main()
