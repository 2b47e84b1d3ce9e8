"""Peers of other interpreters: asked in turn, asleep otherwise, and a broken one ends alone with one clear error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specdec.bench.external import ExternalMode, PeerError, PeerSpec, open_peers, specs
from specdec.bench.samples import BenchPrompt, ModeFailed, Sample
from specdec.bench.session import Plan, measure
from specdec.bench.worker import Worker

FAKE = """
import json, os, sys, threading, time
behaviour = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("BEHAVIOUR", "fine")
print("noise for the log", file=sys.stderr)
for line in sys.stdin:
    q = json.loads(line)
    if q["do"] == "load":
        if behaviour == "cannot load":
            a = {"error": "ValueError: no\\n  such model"}
        else:
            a = {"engine": "fake 1.0", "settings": q["options"], "k": q["num_drafts"], "model": q["model"]}
    elif behaviour == "dies" and q["max_tokens"] == 5:
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(7)
    elif behaviour == "hangs":
        time.sleep(60)
    elif behaviour == "garbage":
        a = "garbage"
    elif behaviour == "short":
        a = {"token_ids": [[1]], "seconds": 0.1}
    elif behaviour == "timeless":
        a = {"token_ids": [[1] * q["max_tokens"]], "seconds": None}
    else:
        a = {"token_ids": [[len(p)] * q["max_tokens"] for p in q["prompts"]], "seconds": 0.25,
             "first_token_seconds": 0.1, "forwards": 4, "drafted": [3, 3], "accepted": [2, 1]}
        if behaviour == "spins":
            threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
    print(json.dumps(a) if a != "garbage" else "Loading weights: 50 %", flush=True)
"""
TARGET = {"model": "m", "dtype": "bfloat16", "max_model_len": 64, "max_num_seqs": 2}
PROMPTS = [BenchPrompt(name, name, (1, 2, 3)) for name in "abc"]


@pytest.fixture
def spec(tmp_path) -> PeerSpec:
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    return PeerSpec("fake", sys.executable, script, False, {"x": 1})


@pytest.fixture
def opened(spec, tmp_path, monkeypatch):
    """Opens the fake peer with a behaviour, and closes it at the end."""
    modes = []

    def open_one(behaviour: str, timeout: float = 20.0) -> ExternalMode:
        monkeypatch.setenv("BEHAVIOUR", behaviour)
        modes.append(ExternalMode(spec, None, tmp_path / "logs", timeout))
        return modes[-1]

    yield open_one
    for mode in modes:
        mode.close()


def test_a_peer_is_a_mode(opened):
    mode = opened("fine")
    assert mode.load(**TARGET) == {"engine": "fake 1.0", "settings": {"x": 1}, "k": None, "model": "m"}
    sample = mode.generate((1, 2, 3), 0.0, 0, 8)
    assert sample.token_ids == [3] * 8 and sample.seconds == 0.25 and sample.first_token_seconds == 0.1
    assert sample.acceptance == 0.5 and sample.tau == 2.0
    assert mode.generate_together([(1,), (1, 2)], 0.0, 0, 4) == (8, 0.25)


def test_between_questions_its_threads_do_not_run(opened):
    mode = opened("spins")
    mode.load(**TARGET)
    mode.generate((1,), 0.0, 0, 4)
    used = mode.cpu_seconds()
    time.sleep(0.4)
    assert mode.cpu_seconds() - used <= 0.05
    assert mode.generate((1,), 0.0, 0, 4).token_ids == [1] * 4  # wakes up again


@pytest.mark.parametrize(
    ("behaviour", "timeout", "message"),
    [
        ("dies", 20.0, "fake: its process ended with code 7; it last wrote: out of luck"),
        ("hangs", 0.5, "no answer within 0.5 s"),
        ("garbage", 20.0, "answered 'Loading weights: 50 %', not a JSON object"),
        ("short", 20.0, r"\[1\] tokens a prompt, asked for 5"),
        ("timeless", 20.0, "seconds None, not a number above 0"),
    ],
)
def test_a_peer_that_breaks_is_one_error_that_names_its_log(opened, tmp_path, behaviour, timeout, message):
    mode = opened(behaviour, timeout)
    mode.load(**TARGET)
    with pytest.raises(ModeFailed, match=message):
        mode.generate((1,), 0.0, 0, 5)
    assert mode.worker.process.poll() is not None  # nothing of it is left running
    assert "noise" in (tmp_path / "logs" / "fake.log").read_text()


def test_a_worker_of_a_missing_interpreter_or_script(spec, tmp_path):
    with pytest.raises(ModeFailed, match="'/nowhere/python' is no program"):
        Worker("fake", "/nowhere/python", spec.script, tmp_path / "log", 1.0)
    with pytest.raises(ModeFailed, match="no script"):
        Worker("fake", sys.executable, tmp_path / "absent.py", tmp_path / "log", 1.0)


class Steady:
    name, num_drafts, peer = "steady", None, False

    def generate(self, token_ids, temperature, seed, max_tokens):
        return Sample([0] * max_tokens, 0.1, max_tokens)


def test_the_others_go_on_and_what_was_measured_is_kept(opened):
    mode = opened("dies")  # at its third question, the first sample of 5 tokens
    mode.load(**TARGET)
    failures: list[ModeFailed] = []
    plan = Plan(temperatures=(0.0,), max_tokens=4, tries=1)
    samples = measure([Steady(), mode], PROMPTS, plan, on_failure=failures.append)
    assert not failures and len(samples) == 6
    samples = measure([Steady(), mode], PROMPTS, Plan((0.0,), 5, 2, tries=1), on_failure=failures.append)
    assert [s.mode for s in samples] == ["steady"] * 6
    assert len(failures) == 1 and "code 7" in str(failures[0])


def test_a_peer_that_cannot_load_does_not_keep_others_from_running(spec, tmp_path, monkeypatch):
    said: list[str] = []
    absent = PeerSpec("gone", "/nowhere/python", spec.script, False)
    drafting = PeerSpec("fake+ngram", spec.python, spec.script, True)
    opened = open_peers([absent, drafting], (2, 4), tmp_path, 20.0, TARGET, said.append)
    try:
        assert [m.name for m in opened.modes] == ["fake ngram k=2", "fake ngram k=4"]
        assert [e["k"] for e in opened.engines.values()] == [2, 4]
        assert len(opened.failures) == 1 and "/nowhere/python" in opened.failures[0]
    finally:
        for mode in opened.modes:
            mode.close()
    monkeypatch.setenv("BEHAVIOUR", "cannot load")
    assert "no such model" in open_peers([spec], (), tmp_path, 20.0, TARGET, said.append).failures[0]


def test_specs_take_interpreter_script_and_options_by_name(monkeypatch):
    monkeypatch.setenv("SPECDEC_VLLM_PYTHON", "/env/python")
    found = specs(
        ["vllm", "vllm-f32+ngram", "mine"], {"mine": "py"}, {"mine": "w.py"}, {"vllm-f32": '{"dtype": "float32"}'}
    )
    assert [(s.python, s.script.name, s.speculates, s.options) for s in found] == [
        ("/env/python", "vllm_worker.py", False, {}),
        ("/env/python", "vllm_worker.py", True, {"dtype": "float32"}),
        ("py", "w.py", False, {}),
    ]


@pytest.mark.parametrize(
    ("names", "pythons", "options", "message"),
    [
        (["nobody"], {}, {}, "unknown peer 'nobody'; there are: lookup, vllm, none"),
        (["vllm"], {}, {}, "--peer-python vllm=/path/to/python or the variable SPECDEC_VLLM_PYTHON"),
        (["vllm"], {"vllm": "p"}, {"vllm": "[1]"}, "not a JSON object"),
        (["vllm"], {"vllm": "p"}, {"vllm": "{"}, "not a JSON object"),
    ],
)
def test_peers_that_cannot_be_started(monkeypatch, names, pythons, options, message):
    monkeypatch.delenv("SPECDEC_VLLM_PYTHON", raising=False)
    with pytest.raises(PeerError, match=message.replace("(", r"\(")):
        specs(names, pythons, {}, options, ["lookup"])


VLLM = """
from types import SimpleNamespace as N
__version__ = "0.0"
class SamplingParams:
    def __init__(self, **fields): self.__dict__ |= fields
class LLM:
    def __init__(self, model, **settings):
        print("vLLM banner on standard output")
        if settings["dtype"] == "float64": raise ValueError("no float64")
        self.k, self.rounds = settings.get("speculative_config", {}).get("num_speculative_tokens"), 0
    def generate(self, prompts, params, use_tqdm):
        print("more of it")
        self.rounds += 3
        assert all(p.ignore_eos and not p.detokenize for p in params)
        return [N(outputs=[N(token_ids=range(p.max_tokens))], metrics=N(first_token_latency=0.5)) for p in params]
    def get_metrics(self):
        if self.k is None or not self.rounds: return []
        return [N(name="vllm:spec_decode_num_drafts", value=float(self.rounds)),
                N(name="vllm:spec_decode_num_accepted_tokens_per_pos", values=[2, 1])]
"""


def test_the_packaged_vllm_worker_with_a_stand_in_for_vllm(tmp_path, monkeypatch):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(VLLM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    chosen = specs(
        ["vllm", "vllm+ngram", "vllm-f64"], {"vllm": sys.executable}, {}, {"vllm-f64": '{"dtype": "float64"}'}
    )
    opened = open_peers(chosen, (2,), tmp_path / "logs", 20.0, TARGET, lambda text: None)
    try:
        assert [m.name for m in opened.modes] == ["vllm", "vllm ngram k=2"]
        assert opened.engines["vllm"]["engine"] == "vllm 0.0"
        assert "no float64" in opened.failures[0]
        plain, drafting = (m.generate((1, 2), 0.8, 7, 6) for m in opened.modes)
        assert plain.token_ids == list(range(6)) and plain.first_token_seconds == 0.5 and plain.forwards == 6
        assert drafting.drafted_per_position == [3, 3] and drafting.accepted_per_position == [2, 1]
        assert drafting.forwards == 3
    finally:
        for mode in opened.modes:
            mode.close()
    assert "banner" in (tmp_path / "logs" / "vllm.log").read_text()


def test_a_stopped_worker_does_not_outlive_us(spec, tmp_path):
    program = f"""
import os, json
from pathlib import Path
from specdec.bench.external import ExternalMode, PeerSpec
mode = ExternalMode(PeerSpec("fake", {sys.executable!r}, Path({str(spec.script)!r}), False), None, Path({str(tmp_path)!r}), 20)
mode.load(**json.loads({json.dumps(TARGET)!r}))
print(mode.worker.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    for _ in range(50):
        if not _alive(pid):
            return
        time.sleep(0.1)
    os.kill(pid, 9)
    pytest.fail("the worker is still there")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
