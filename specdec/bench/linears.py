"""Time the CPU kernels' linear maps at verify widths, row-major against repacked: ``python -m specdec.bench.linears``."""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from specdec_kernels.cpu.native import NativeLinear, arena_for

LAYERS = 30
SHAPES = ((576, 3072), (1536, 576), (576, 960))  # inputs, outputs: the maps of a 135M-parameter decoder layer
WIDTHS = (1, 2, 4, 6, 8, 12, 16)


def measure(dtype: torch.dtype, repeats: int) -> list[tuple[int, float, float]]:
    """(tokens, row-major ms, repacked ms) per width: medians over all layers, the two alternating."""
    modules = [torch.nn.Linear(k, n, bias=False).to(dtype) for k, n in SHAPES for _ in range(LAYERS)]
    arena = arena_for(modules)
    kinds = {pack: [NativeLinear(module, arena if pack else None) for module in modules] for pack in (False, True)}
    rows = []
    for width in WIDTHS:
        inputs = {k: torch.randn(width, k).to(dtype) for k, _ in SHAPES}
        seconds: dict[bool, list[float]] = {pack: [] for pack in kinds}
        for _ in range(repeats):
            for pack, linears in kinds.items():
                start = time.perf_counter()
                for linear in linears:
                    linear(inputs[linear.k])
                seconds[pack].append(time.perf_counter() - start)
        rows.append((width, 1e3 * statistics.median(seconds[False]), 1e3 * statistics.median(seconds[True])))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--repeats", type=int, default=11)
    args = parser.parse_args()
    gflop = 2e-9 * LAYERS * sum(k * n for k, n in SHAPES)
    print(f"{args.dtype}, {torch.get_num_threads()} threads\ntokens  row-major  repacked  repacked GFLOP/s")
    with torch.inference_mode():
        for width, plain, packed in measure(getattr(torch, args.dtype), args.repeats):
            print(f"{width:6d} {plain:7.1f} ms {packed:6.1f} ms {1e3 * gflop * width / packed:8.0f}")


if __name__ == "__main__":
    main()
