"""Check and time everything that needs a GPU, in under 8 minutes: prints one table, writes JSON.

    python scripts/gpu_check.py [--json gpu_check.json] [--quick]

Ends with exit code 2 and a message where there is no CUDA device, 1 if a kernel differs from its reference, else 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
# seconds after the start until which a stage begins new cases; all together stay under 8 minutes
SHARES = {"correctness": 150, "throughput": 270, "end_to_end": 400}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("gpu_check.json"), help="where to write the results")
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    args = parser.parse_args()
    try:
        import torch
    except ModuleNotFoundError:
        print("gpu_check: torch is not installed; install the extra 'run'", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("gpu_check: no CUDA device here; run this script on a machine with an NVIDIA GPU", file=sys.stderr)
        return 2
    from benchmarks import correctness, end_to_end, throughput

    began = time.monotonic()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_bytes_per_s": throughput.copy_bandwidth(),
    }
    stages = {
        "correctness": lambda: correctness.run(quick=args.quick, until=began + SHARES["correctness"]),
        "throughput": lambda: throughput.run(quick=args.quick, until=began + SHARES["throughput"]),
        "end_to_end": lambda: end_to_end.run(until=began + SHARES["end_to_end"]),
    }
    run_stages(stages, report, args.json, began)
    print(render(report))
    return 0 if not report["errors"] and all(row["equal"] for row in report["correctness"]) else 1


def run_stages(stages: dict[str, Callable[[], Any]], report: dict[str, Any], path: Path, began: float) -> None:
    """Run every stage and write what there is after each, so that a failing one costs only itself."""
    report |= {"correctness": [], "throughput": [], "end_to_end": {}, "errors": {}}
    for name, stage in stages.items():
        try:
            report[name] = stage()
        except Exception as error:
            report["errors"][name] = f"{type(error).__name__}: {error}"[:500]
        report["seconds"] = round(time.monotonic() - began, 1)
        path.write_text(json.dumps(report, indent=1) + "\n")


def render(report: dict[str, Any]) -> str:
    """One table of the whole report."""
    copy = report["copy_bytes_per_s"]
    lines = [f"{report['device']} · torch {report['torch']} · copy {copy / 1e12:.2f} TB/s · {report['seconds']} s", ""]
    lines += ["| check | case | result |", "|---|---|---|"]
    for row in report["correctness"]:
        verdict = "equal" if row["equal"] else f"DIFFERS ({row['detail']})"
        lines.append(f"| {row['op']} | {row['case']} | {verdict} |")
    for row in report["throughput"]:
        share = row["bytes_per_s"] / copy
        lines.append(f"| {row['op']} | {row['case']} | {row['us']:.1f} us, {share:.0%} of copy |")
    for name, value in report["end_to_end"].items():
        lines.append(f"| end to end | {name} | {value} |")
    for name, error in report.get("errors", {}).items():
        lines.append(f"| {name} | stopped | {error} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "kernels"))
    sys.exit(main())
