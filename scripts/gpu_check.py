"""Check and time everything that needs a GPU, in under 8 minutes: prints one table, writes JSON.

    python scripts/gpu_check.py [--json gpu_check.json] [--quick]

Ends with exit code 2 and a message where there is no CUDA device, 1 if a kernel differs from its reference, else 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
TIME_LIMIT_S = 8 * 60


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
    report["correctness"] = correctness.run(quick=args.quick)
    report["throughput"] = throughput.run(report["copy_bytes_per_s"], quick=args.quick)
    left = TIME_LIMIT_S - 60 - (time.monotonic() - began)
    report["end_to_end"] = end_to_end.run(left) if left > 60 else {"skipped": "no time left"}
    report["seconds"] = round(time.monotonic() - began, 1)
    args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(render(report))
    return 0 if all(row["equal"] for row in report["correctness"]) else 1


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
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "kernels"))
    sys.exit(main())
