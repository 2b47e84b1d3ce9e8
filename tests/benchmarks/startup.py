"""Start-up times of the command line, run by hand: ``python tests/benchmarks/startup.py``.

Prints the minimum of several cold processes in milliseconds, and the time of one call over 1,000 files.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOOD = Path(__file__).resolve().parents[1] / "examples" / "good" / "ngram.yaml"
BAD = Path(__file__).resolve().parents[1] / "examples" / "bad" / "key-typo.yaml"
OVERRIDE = "speculative.num_speculative_tokens=5"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "specdec --help": ["-m", "specdec", "--help"],
    "validate good.yaml": ["-m", "specdec", "validate", str(GOOD)],
    "validate bad.yaml": ["-m", "specdec", "validate", str(BAD)],
    "validate good.yaml with an override": ["-m", "specdec", "validate", str(GOOD), OVERRIDE],
    "plan good.yaml": ["-m", "specdec", "plan", str(GOOD)],
    "plan good.yaml with an override": ["-m", "specdec", "plan", str(GOOD), OVERRIDE],
}


def once(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def main(repeats: int = 7) -> None:
    for name, arguments in COMMANDS.items():
        print(f"{name:40} {1000 * min(once(arguments) for _ in range(repeats)):7.0f} ms")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"run{i}.yaml" for i in range(1000)]
        for file in files:
            file.write_bytes(GOOD.read_bytes())
        print(f"{'validate, 1,000 files':40} {once(['-m', 'specdec', 'validate', *map(str, files)]):7.2f} s")


if __name__ == "__main__":
    main()
