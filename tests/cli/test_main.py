"""The command itself: help, unknown verbs, exit codes, what is imported."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specdec.cli.main import VERBS, main

GOOD = Path(__file__).resolve().parents[1] / "examples" / "good" / "ngram.yaml"
HEAVY = ("torch", "transformers", "triton", "hydra", "omegaconf", "pydantic", "celpy", "jsonschema", "numpy")


def loaded_after(*arguments: str) -> set[str]:
    """The top-level modules that a command loads."""
    program = "import sys, json\nfrom specdec.cli.main import main\nmain(sys.argv[1:])\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def test_help_lists_every_verb_without_importing_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {verb} " in out for verb in VERBS)
    assert main([]) == 2
    assert "specdec.cli.plan" not in loaded_after("--help")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("specdec 0.")


@pytest.mark.parametrize(
    ("verb", "says"),
    [("valdate", "did you mean 'specdec validate'?"), ("zzz", "there are: validate"), (str(GOOD), "specdec validate")],
)
def test_unknown_verbs(verb: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == 2
    err = capsys.readouterr().err
    assert says in err and len(err.splitlines()) == 1


def test_help_of_a_verb_and_bad_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--help"]) == 0
    assert "exit codes" in capsys.readouterr().out
    assert main(["validate", "--fromat", "json"]) == 2
    assert main(["validate", "--format", "xml", str(GOOD)]) == 2


def test_validate_loads_nothing_heavy() -> None:
    assert not loaded_after("validate", str(GOOD)) & set(HEAVY)


def test_overrides_load_hydra_but_not_the_runtime() -> None:
    loaded = loaded_after("validate", str(GOOD), "engine.seed=1")
    assert "hydra" in loaded
    assert not loaded & {"torch", "transformers", "triton", "pydantic", "numpy"}


PLAN = (("plan", "speculative.num_speculative_tokens=3"), ("plan",))


@pytest.mark.parametrize("arguments", PLAN)
def test_plan_loads_hydra_only_for_overrides(arguments: tuple[str, ...]) -> None:
    loaded = loaded_after(*arguments)
    assert ("hydra" in loaded) is (len(arguments) > 1)
    # options are the record's pydantic model, which is compiled for the one method in use
    assert not loaded & (set(HEAVY) - {"hydra", "omegaconf", "pydantic"})


@pytest.mark.parametrize(("arguments", "seconds"), [(("validate", str(GOOD)), 1.5), (PLAN[0], 3.0), (PLAN[1], 3.0)])
def test_start_up_has_a_ceiling(arguments: tuple[str, ...], seconds: float) -> None:
    """A generous ceiling on CPU time, so that a heavy import shows even on a busy machine."""
    program = "import sys, time\nfrom specdec.cli.main import main\nmain(sys.argv[1:])\nprint(time.process_time(), file=sys.stderr)"
    runs = [
        subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert min(float(run.stderr) for run in runs) < seconds


def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "specdec", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.wait()
    assert b"Traceback" not in errors and process.returncode == 2


def test_a_thousand_files_in_one_call(tmp_path: Path) -> None:
    files = [tmp_path / f"run{i}.yaml" for i in range(1000)]
    for file in files:
        file.write_bytes(GOOD.read_bytes())
    start = time.process_time()
    assert main(["validate", "-q", *map(str, files)]) == 0
    assert time.process_time() - start < 10
