"""A server in a process of its own, as users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

_PATIENCE = 60.0


class ServeProcess:
    """``pixnar serve`` and what it logs; `start` waits until it listens."""

    def __init__(
        self, index: Path, *options: str, environment: Mapping[str, str] | None = None, patience: float = _PATIENCE
    ) -> None:
        self.log: list[dict[str, Any]] = []
        self._patience = patience
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pixnar.cli", "serve", str(index), "--port", "0", *options],
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self.wait_for("serving")["address"]
        self.host, _, port = self.address.removeprefix("http://").rpartition(":")
        self.port = int(port)

    def __enter__(self) -> ServeProcess:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.log.append({"event": "text", "text": line.rstrip()})

    def events(self, name: str) -> list[dict[str, Any]]:
        """What was logged under a name."""
        return [line for line in list(self.log) if line["event"] == name]

    def wait_for(self, name: str, count: int = 1) -> dict[str, Any]:
        """The count-th event of a name, as soon as it is logged."""
        until = time.monotonic() + self._patience
        while time.monotonic() < until:
            if len(found := self.events(name)) >= count:
                return found[count - 1]
            if self.process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.01)
        raise RuntimeError(f"no event {name!r} from the server; the last it said: {self.log[-3:]}")

    def stop(self, sig: int = signal.SIGTERM) -> int:
        """Tell it to end, and wait for that; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(self._patience)
        self._reader.join(self._patience)
        return code

    def resident_mb(self) -> float:
        """Memory that the process holds."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and the worst, in milliseconds."""
    ordered = sorted(values)
    if not ordered:
        return {}
    at = {"p50": 0.5, "p99": 0.99, "worst": 1.0}
    return {
        name: round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) for name, share in at.items()
    }
