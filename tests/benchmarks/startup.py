"""Start-up times of the command line, run by hand: ``python tests/benchmarks/startup.py``.

Prints, for each command, the minimum of several processes: wall and CPU milliseconds; and the time of one call over
1,000 files. Commands are taken in turns, so that a busy moment falls on all of them. Python's bytecode is kept in a
folder of its own, as an installed package has it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
GOOD = str(TESTS / "examples" / "good" / "ngram.yaml")
BAD = str(TESTS / "examples" / "bad" / "key-typo.yaml")
OVERRIDE = "speculative.num_speculative_tokens=3"
TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 12,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
DRAFT = {
    **TARGET, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 128,
    "eagle_aux_hidden_state_layer_ids": [2, 6, 9],
}  # fmt: skip
RUNS = {
    "ngram.yaml": "{method: ngram, num_speculative_tokens: 4, prompt_lookup_max: 4}",
    "eagle3.yaml": "{method: eagle3, model: ./draft, num_speculative_tokens: 3}",
}
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "--help": ["-m", "specdec", "--help"],
    "validate": ["-m", "specdec", "validate", GOOD],
    "validate, a fault": ["-m", "specdec", "validate", BAD],
    "validate, an override": ["-m", "specdec", "validate", GOOD, OVERRIDE],
    "plan": ["-m", "specdec", "plan"],
    "plan, an override": ["-m", "specdec", "plan", OVERRIDE],
    "plan ngram.yaml": ["-m", "specdec", "plan", "ngram.yaml"],
    "plan ngram.yaml, an override": ["-m", "specdec", "plan", "ngram.yaml", OVERRIDE],
    "plan eagle3.yaml": ["-m", "specdec", "plan", "eagle3.yaml"],
    "plan eagle3.yaml, an override": ["-m", "specdec", "plan", "eagle3.yaml", OVERRIDE],
}


def once(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Wall and CPU milliseconds of one process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * wall, 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main(repeats: int = 7) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for checkpoint, config in (("target", TARGET), ("draft", DRAFT)):
            (folder / checkpoint).mkdir()
            (folder / checkpoint / "config.json").write_text(json.dumps(config))
        for file, block in RUNS.items():
            (folder / file).write_text(f"target: {{model: ./target, max_model_len: 1024}}\nspeculative: {block}\n")
        for arguments in COMMANDS.values():
            once(arguments, folder)  # compiles
        times = [{label: once(arguments, folder) for label, arguments in COMMANDS.items()} for _ in range(repeats)]
        for label in COMMANDS:
            wall, cpu = (min(run[label][i] for run in times) for i in (0, 1))
            print(f"{label:32} {wall:7.0f} ms {cpu:7.0f} ms CPU")
        files = [folder / f"run{i}.yaml" for i in range(1000)]
        for path in files:
            path.write_bytes(Path(GOOD).read_bytes())
        wall, cpu = once(["-m", "specdec", "validate", *map(str, files)], folder)
        print(f"{'validate, 1,000 files':32} {wall:7.0f} ms {cpu:7.0f} ms CPU")


if __name__ == "__main__":
    main()
