"""Environment of a measurement: machine, versions, date and command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def environment(*libraries: str) -> dict[str, Any]:
    """The machine, the versions, the commit, the date and the command."""
    return {
        "cpu": _fact("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(int((_fact("/proc/meminfo", "MemTotal") or "0").split()[0]) * 1024 / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {name: _version(name) for name in libraries},
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def resident_mb() -> float:
    """Memory of this process in megabytes; of mapped files what was touched."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _fact(path: str, key: str) -> str | None:
    if not Path(path).is_file():
        return None
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    here = Path(__file__).resolve()
    git = ["git", "-C", str(here.parent)]
    try:  # an installed package may lie in the repository of somebody else
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], capture_output=True, check=True)
        result = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=True
        )
        return result.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
