"""What searches: an index of ours, or any other system that is to be compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pixnar.search.hits import Hit


class Retriever(Protocol):
    """Texts come in; for each the best documents come out, best first, none twice."""

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents, or as many as there are."""

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries, whose answers do not depend on each other."""
