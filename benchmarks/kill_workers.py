"""Kills workers of a Ray that this process started, in the middle of their jobs, at random moments."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

IDLE = "IDLE"  # Ray's name for a worker without a job


class Killer:
    """What `killing` gives: how many workers it has killed so far, and during which jobs."""

    def __init__(self) -> None:
        self.kills: list[str] = []
        self.enough = threading.Event()


@contextlib.contextmanager
def killing(most: int, seed: int = 0, pause: tuple[float, float] = (0.0, 0.5)) -> Iterator[Killer]:
    """Kill up to `most` workers while the block runs, each with SIGKILL after a random pause; idle ones are spared."""
    killer, chance, stop = Killer(), random.Random(seed), threading.Event()

    def work() -> None:
        while len(killer.kills) < most and not stop.wait(chance.uniform(*pause)):
            busy = busy_workers()
            while not busy and not stop.wait(0.01):
                busy = busy_workers()
            if stop.is_set():
                return
            pid, job = chance.choice(sorted(busy.items()))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killer.kills.append(job)
        killer.enough.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield killer
    finally:
        stop.set()
        thread.join()


def busy_workers() -> dict[int, str]:
    """The Ray workers below this process that have a job, and its name."""
    return {pid: job for pid, job in ray_workers().items() if job != IDLE}


def ray_workers() -> dict[int, str]:
    """The Ray workers below this process, and what each is doing: a job's name, or IDLE."""
    found: dict[int, str] = {}
    for pid in processes():
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").strip()
            # A job is called after its stage, in small letters; Ray's own helpers, without which no node lives, in
            # capitals, as idle workers are.
            name = title.removeprefix("ray::")
            if title.startswith("ray::") and (name == IDLE or name[:1].islower()):
                found[pid] = name
    return found


def processes() -> dict[int, float]:
    """The process itself and all below it, with the seconds of processor time that each has taken."""
    children: dict[int, list[int]] = defaultdict(list)
    seconds: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of a process may hold anything, blanks and brackets too: what follows begins behind the last one.
            fields = stat.read_text().rsplit(")", 1)[1].split()
            children[int(fields[1])].append(int(stat.parent.name))
            seconds[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found: dict[int, float] = {}
    below = [os.getpid()]
    while below:
        pid = below.pop()
        below += children[pid]
        found[pid] = seconds.get(pid, 0.0)
    return found
