"""Compile every kernel ahead of time, without a GPU, and record registers and spills in kernels/COMPILED.{json,md}.

python scripts/compile_kernels.py             # all architectures, rewrites the table
python scripts/compile_kernels.py --arch 90   # print one architecture, change nothing
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "kernels"))

ARCHITECTURES = (80, 90, 100)
BLOCK, BLOCKS = 4096, 64  # vocabulary tile, and tiles of a 262144-token vocabulary
POINTERS = {
    "f": "*fp32",
    "b": "*bf16",
    "l": "*i64",
    "i": "*i32",
    "u": "*u8",
}  # fmt: skip


def variants() -> list[tuple[str, Any, dict[str, str], dict[str, Any], int]]:
    """(name, kernel, types of arguments, constants, warps) of everything that is launched in production."""
    from specdec_kernels.accept import triton as accept
    from specdec_kernels.block_verify import triton as block_verify
    from specdec_kernels.categorical import triton as categorical
    from specdec_kernels.fused_verify import triton as fused
    from specdec_kernels.gather_drafts import triton as gather
    from specdec_kernels.ngram_match import triton as ngram
    from specdec_kernels.residual_sample import triton as residual
    from specdec_kernels.row_stats import triton as row_stats

    tile, line = {"BLOCK": BLOCK}, {"BLOCKS": BLOCKS}
    small = {"BLOCK": residual.GUMBEL_BLOCK}
    out: list[tuple[str, Any, dict[str, str], dict[str, Any], int]] = []
    for dtype, logits in (("bf16", "b"), ("fp32", "f")):
        big = {"logits": logits, "target": logits, "draft": logits}
        out += [
            (f"row_stats/blocks {dtype}", row_stats.row_stats_blocks, big, tile, 8),
            (f"row_stats/combine {dtype}", row_stats.row_stats_combine, big, line, 1),
            (f"categorical/gumbel_rows {dtype}", categorical.gumbel_rows, big, tile, 8),
            (f"categorical/inverse_rows {dtype}", categorical.inverse_rows, big, tile | line, 8),
            (f"block_verify/residual_masses {dtype}", block_verify.residual_masses, big, tile, 8),
            (f"fused_verify {dtype}", fused.fused_verify_kernel, big, tile | line, 8),
        ]
        for law, has in (("one-hot", False), ("full q", True)):
            shape = big if has else big | dict.fromkeys(("draft", "draft_max", "draft_lse"), "")
            tag = f"{law} {dtype}"
            const = {"HAS_DRAFT_LAW": has}
            out += [
                (f"residual_sample/law_masses {tag}", residual.law_masses, shape, tile | const, 8),
                (f"residual_sample/pick_token {tag}", residual.pick_token, shape, tile | line | const, 8),
                (f"residual_sample/gumbel_blocks {tag}", residual.gumbel_blocks, shape, const | small, 8),
            ]
    for law, has in (("one-hot", False), ("full q", True)):
        types = {} if has else {"draft_logprob": ""}
        const = {"HAS_DRAFT_LAW": has}
        out += [
            (f"block_verify/prefix_masses {law}", block_verify.prefix_masses, types, const, 1),
            (f"block_verify/block_accept {law}", block_verify.block_accept, types, const | line, 1),
        ]
    for name, rates, drawn in (("standard", False, False), ("synthetic", True, False), ("coupled", False, True)):
        for law, has in (("one-hot", False), ("full q", True)):
            if has and name != "standard":
                continue
            empty = [n for n, used in (("draft_logprob", has), ("rates", rates), ("target_draw", drawn)) if not used]
            const = {"HAS_DRAFT_LAW": has, "HAS_RATES": rates, "COUPLED": drawn}
            out.append((f"accept/{name} {law}", accept.accept_chain, dict.fromkeys(empty, ""), const, 1))
    out += [
        ("categorical/best_of_row", categorical.best_of_row, {}, line, 1),
        ("residual_sample/gumbel_pick", residual.gumbel_pick, {}, {"BLOCKS": 2 * BLOCKS}, 1),
        ("gather_drafts", gather.gather_rows, {}, {"WIDTH": 16}, 1),
        ("ngram_match/score", ngram.score_positions, {}, {"BLOCK": 1024, "RIGHTMOST": False}, 4),
        ("ngram_match/draft", ngram.draft_after_match, {}, {"BLOCKS": 128, "WIDTH": 16, "RIGHTMOST": False}, 1),
    ]
    return out


# element types of pointer arguments by name; everything else is a 32-bit integer
TYPES = {
    "f": (
        "temperature block_max block_sum maximum lse token_logprob target_max target_lse target_logprob draft_logprob "
        "draft_max draft_lse rates rho scale masses best plain_best"
    ),
    "l": (
        "tokens argmax target_argmax target_draw drafts seeds positions slots token out last_tokens input_ids "
        "row_positions judged history lengths scores token_ids "
        "num_sampled"
    ),
    "u": "invalid",
    "i": "block_arg num_drafts row_start num_accepted kind length best_at plain_at request counters row_request",
}
BY_NAME = {name: kind for kind, names in TYPES.items() for name in names.split()}


def compile_variant(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], warps: int, arch: int
) -> dict[str, int]:
    """Registers, spilled bytes and shared memory of one variant on one architecture."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constexprs, attrs = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        kind = types.get(name, BY_NAME.get(name, "int"))
        if name in constants or kind == "":
            signature[name] = "constexpr"
            constexprs[name] = constants.get(name)
            continue
        signature[name] = POINTERS.get(kind, "i32")
        # what the launcher specialises on for aligned tensors and strides divisible by 16
        if kind != "int" or name.endswith("stride"):
            attrs[(i,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attrs)
    binary = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps})
    return {**resource_usage(binary.asm["cubin"]), "shared": binary.metadata.shared}


def resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers a thread and bytes of local memory (spills and stack), as the cubin declares them."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return {"registers": found["REG"], "spills": found["STACK"] + found["LOCAL"]}


def table(results: dict[str, dict[str, dict[str, int]]], version: str) -> str:
    """The Markdown form of the results."""
    head = " | ".join(f"sm_{a} registers / spills" for a in ARCHITECTURES)
    lines = [
        "# Kernels compiled ahead of time",
        "",
        f"Registers a thread and spilled bytes, Triton {version}, tiles of {BLOCK} tokens;"
        " written by `scripts/compile_kernels.py`.",
        "**GPU figures (times, achieved bytes/s) are missing: no GPU was at hand."
        " `scripts/gpu_check.py` measures them.**",
        "",
        f"| kernel | warps | {head} |",
        "|---|---|" + "---|" * len(ARCHITECTURES),
    ]
    for name, row in results.items():
        cells = [f"{row[f'sm_{a}']['registers']} / {row[f'sm_{a}']['spills']}" for a in ARCHITECTURES]
        lines.append(f"| {name} | {row['warps']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", type=int, choices=ARCHITECTURES, help="compile one architecture and print JSON")
    parser.add_argument("--only", default="", help="only kernels whose name contains this")
    args = parser.parse_args()
    import triton

    results: dict[str, Any] = {}
    for name, kernel, types, constants, warps in variants():
        if args.only not in name:
            continue
        results[name] = {"warps": warps}
        for arch in (args.arch,) if args.arch else ARCHITECTURES:
            results[name][f"sm_{arch}"] = compile_variant(kernel, types, constants, warps, arch)
        print(name, results[name], file=sys.stderr)
    if args.arch or args.only:
        print(json.dumps(results))
        return 0
    record = {"triton": triton.__version__, "gpu_figures": None, "kernels": results}
    (ROOT / "kernels/COMPILED.json").write_text(json.dumps(record, indent=1) + "\n")
    (ROOT / "kernels/COMPILED.md").write_text(table(results, triton.__version__))
    return 0


if __name__ == "__main__":
    sys.exit(main())
