"""Log of the server: one JSON object a line on standard error, without query texts unless asked for."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO


class Log:
    """Event log; each line is written under a lock."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def __call__(self, event: str, *, level: str = "info", **facts: Any) -> None:
        """Write one event."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "level": level, "event": event, **facts}, ensure_ascii=False, default=str)
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except UnicodeEncodeError:
                self._stream.write(line.encode("ascii", "backslashreplace").decode() + "\n")
            except (OSError, ValueError):  # the stream is closed: answers matter more than their log
                pass


class LogHandler(logging.Handler):
    """Handler that writes the log records of libraries as events."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line, without its traceback."""
        self._log("library", level=record.levelname.lower(), logger=record.name, message=record.getMessage())
