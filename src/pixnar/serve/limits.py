"""Limits of a request and of the queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one server. A request over a limit is refused with a line that says what to change, never cut."""

    k: int = 1000  # documents of a query
    query_characters: int = 2000
    queries: int = 64  # of one request
    ids: int = 10_000  # in allow and forbid, and documents or docids of one change
    width: int = 1000  # of a beam
    body_bytes: int = 1 << 20
    waiting: int = 512  # queries in the queue, however quick they are
    wait_seconds: float = 0.0  # longest expected wait of a new query; 0: twice the time of a query without load
    timeout_seconds: float = 10.0  # for a request to arrive, and again to be answered


class RefusedError(Exception):
    """A refused request: HTTP status, a line for the client, and when to retry."""

    def __init__(self, status: int, line: str, retry_after: float | None = None) -> None:
        super().__init__(line)
        self.status, self.line, self.retry_after = status, line, retry_after
