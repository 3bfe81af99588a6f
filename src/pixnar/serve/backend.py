"""What a server asks of whatever holds its index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pixnar.serve.handlers import Job, Watch
from pixnar.serve.limits import Limits
from pixnar.serve.schemas import Addition


class Backend(Protocol):
    """An index in service: whole and in this process (`LiveIndex`), or elsewhere."""

    seconds: float  # what a query takes
    listeners: list[Callable[[str], None]]  # who is told the names of events

    @property
    def name(self) -> str:
        """What the index is called."""
        ...

    def answers(self, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
        """A result in JSON for each job, or why there is none; `watch` is told the seconds of each stage."""
        ...

    def facts(self) -> dict[str, Any]:
        """How many documents, docids, tokens and slots there are; what ranks; which keys filters may name."""
        ...

    def add(self, wish: Addition, limits: Limits) -> None:
        """Let docids name documents, all of it or nothing."""
        ...

    def remove(self, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
        """Remove documents, or docids, or pairs of both."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
