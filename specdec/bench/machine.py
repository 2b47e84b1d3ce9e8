"""The machine a benchmark ran on, and whether others were using it meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

QUIET = 0.06  # cores that other processes may use in an undisturbed sample


class CpuWatch:
    """CPU time that other processes (or, on a virtual machine, other guests) took since the last ``reset``.

    ``also_ours`` tells the seconds of processes that are part of what is measured.
    """

    def __init__(self, also_ours: Callable[[], float] | None = None) -> None:
        self.also_ours = also_ours or (lambda: 0.0)
        self.reset()

    def reset(self) -> None:
        self.start, self.others = time.perf_counter(), self._others()

    def cores_of_others(self) -> float:
        """Mean number of cores others kept busy; 0 where the system does not tell."""
        wall = time.perf_counter() - self.start
        return max(0.0, (self._others() - self.others) / wall) if wall > 0 else 0.0

    def _others(self) -> float:
        return _machine_seconds() - _own_seconds() - self.also_ours()

    def disturbed(self) -> bool:
        # the kernel counts in ticks of 10 ms: short samples need a margin of a few
        wall = time.perf_counter() - self.start
        return self.cores_of_others() > QUIET + 0.05 / max(wall, 1e-3)


def _own_seconds() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def _machine_seconds() -> float:
    """Busy seconds of all cores, stolen time included; our own seconds where there is no /proc."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return _own_seconds()
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields)
    return float(user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def describe() -> dict[str, object]:
    """CPU, cores, memory, threads and versions, for the report."""
    import torch

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    flags = set(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    return {
        "cpu": model or platform.processor() or platform.machine(),
        "instructions": [flag for flag in wanted if flag in flags],
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "transformers", "declarative-specdec", "flashspec")},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
