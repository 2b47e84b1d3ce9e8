"""Runs inside an interpreter that has vLLM: loads one engine and answers ``specdec bench`` in JSON lines.

Needs the standard library and vLLM only. Questions come on standard input, one object a line; each gets one answer on
the standard output that the process started with. Everything vLLM prints there is sent to standard error instead.
``load`` {model, dtype, num_drafts, max_model_len, max_num_seqs, options} -> {engine, settings};
``generate`` {prompts, temperature, seed, max_tokens}
-> {token_ids, seconds, first_token_seconds, forwards, drafted, accepted}.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

RESTARTED = "SPECDEC_BENCH_WORKER_RESTARTED"
# vLLM's own advice for processors: Intel's OpenMP runtime and tcmalloc, loaded before anything else
LIBRARIES = ("libiomp5.so", "libtcmalloc_minimal.so.4")
FOLDERS = (Path(sys.prefix) / "lib", Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu"))


def preload() -> None:
    """Start again with the libraries loaded first, where they are installed."""
    found = [str(f / name) for name in LIBRARIES for f in FOLDERS if (f / name).exists()]
    if found and RESTARTED not in os.environ:
        before = os.environ.get("LD_PRELOAD", "").split(":")
        os.environ |= {RESTARTED: "1", "LD_PRELOAD": ":".join(dict.fromkeys([*found, *filter(None, before)]))}
        os.execv(sys.executable, [sys.executable, *sys.argv])


class Engine:
    """One vLLM engine in this process."""

    def __init__(self, request: dict[str, Any]) -> None:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # no hand-over between processes at every step
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import vllm

        settings: dict[str, Any] = {
            "dtype": request["dtype"],
            "max_model_len": request["max_model_len"],
            "max_num_seqs": request["max_num_seqs"],
            "enable_prefix_caching": False,  # the same prompt comes again: its prompt must cost what it costs
            "disable_log_stats": False,  # counts of drafts come from there
        }
        k = request.get("num_drafts")
        if k is not None:
            lookup = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
            settings["speculative_config"] = {"method": "ngram", "num_speculative_tokens": k, **lookup}
        settings |= request.get("options") or {}
        self.vllm, self.settings = vllm, settings
        self.llm = vllm.LLM(model=request["model"], **settings)
        self.counts = self._counts()

    def describe(self) -> dict[str, Any]:
        return {"engine": f"vllm {self.vllm.__version__}", "settings": self.settings}

    def generate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Every prompt of the batch to exactly ``max_tokens`` tokens."""
        params = [
            self.vllm.SamplingParams(
                temperature=request["temperature"], seed=request["seed"] + i if request["temperature"] > 0 else None,
                max_tokens=request["max_tokens"], ignore_eos=True, detokenize=False,
            )
            for i in range(len(request["prompts"]))
        ]  # fmt: skip
        prompts = [{"prompt_token_ids": ids} for ids in request["prompts"]]
        start = time.perf_counter()
        outputs = self.llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        before, self.counts = self.counts, self._counts()
        drafted, accepted = (_minus(now, was) for now, was in zip(self.counts, before, strict=True))
        token_ids = [list(output.outputs[0].token_ids) for output in outputs]
        return {
            "token_ids": token_ids,
            "seconds": seconds,
            "first_token_seconds": getattr(outputs[0].metrics, "first_token_latency", None),
            # alone, a step emits one token and the accepted drafts
            "forwards": len(token_ids[0]) - sum(accepted) if len(prompts) == 1 else 0,
            "drafted": drafted,
            "accepted": accepted,
        }

    def _counts(self) -> tuple[list[int], list[int]]:
        """Drafts and accepted drafts per position so far; drafts are counted as whole rounds of k."""
        rounds, accepted = 0, []
        for metric in self.llm.get_metrics():
            if metric.name == "vllm:spec_decode_num_drafts":
                rounds = int(metric.value)
            elif metric.name == "vllm:spec_decode_num_accepted_tokens_per_pos":
                accepted = [int(v) for v in metric.values]
        return [rounds] * len(accepted), accepted


def _minus(now: list[int], before: list[int]) -> list[int]:
    return [a - (before[i] if i < len(before) else 0) for i, a in enumerate(now)]


def serve(questions: Any, answers: Any) -> None:
    """Answer until the questions end. A question that fails is answered with ``error``."""
    engine: Engine | None = None
    for line in questions:
        request = json.loads(line)
        try:
            if request["do"] == "load":
                engine = Engine(request)
                answer = engine.describe()
            else:
                assert engine is not None, "generate before load"
                answer = engine.generate(request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    preload()
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, channel)
