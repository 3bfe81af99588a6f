"""How much one request may ask for, and how many may wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is over a limit is refused with a line that says what to change; nothing is cut silently."""

    k: int = 1000  # documents of a query
    query_characters: int = 2000
    queries: int = 64  # of one request
    ids: int = 10_000  # in allow and forbid, and documents or docids of one change
    width: int = 1000  # of a beam
    body_bytes: int = 1 << 20
    waiting: int = 512  # queries that wait, whatever time they will take
    wait_seconds: float = 0.0  # how long a new query may have to wait; 0: twice what an unhurried query takes
    timeout_seconds: float = 10.0  # for a request to arrive, and again to be answered


class RefusedError(Exception):
    """A request that is not answered: an HTTP status, a line for whoever asked, and when to come again."""

    def __init__(self, status: int, line: str, retry_after: float | None = None) -> None:
        super().__init__(line)
        self.status, self.line, self.retry_after = status, line, retry_after
