"""Backend: what the server needs of an index, whether it is local or distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pixnar.serve.handlers import Job, Watch
from pixnar.serve.limits import Limits
from pixnar.serve.schemas import Addition


class Backend(Protocol):
    """An index in service: in this process (`LiveIndex`) or elsewhere."""

    seconds: float  # time of one query
    listeners: list[Callable[[str], None]]  # called with the name of each event

    @property
    def name(self) -> str:
        """Name of the index."""
        ...

    def answers(self, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
        """A JSON result for each job, or its error; `watch` receives the seconds of each stage."""
        ...

    def facts(self) -> dict[str, Any]:
        """Counts of documents, docids, tokens and slots; the sources that rank; the metadata keys of filters."""
        ...

    def add(self, addition: Addition, limits: Limits) -> None:
        """Add documents and docids, all or none."""
        ...

    def remove(self, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
        """Remove documents, docids, or pairs of both."""
        ...

    def close(self) -> None:
        """Release the index."""
        ...
