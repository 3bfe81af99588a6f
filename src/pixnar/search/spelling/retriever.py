"""A retriever whose queries are corrected before they are asked: for baselines, which have no lexicon of their own."""

from __future__ import annotations

from collections.abc import Sequence

from pixnar.search import Hit, Retriever
from pixnar.search.spelling.correct import Speller
from pixnar.vocab import normalize


class Corrected:
    """A `Retriever` that asks another one for corrected texts."""

    def __init__(self, retriever: Retriever, speller: Speller) -> None:
        self.retriever, self.speller = retriever, speller

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents of the corrected query."""
        return self.retriever.search(self.speller.correct(normalize(query)), k)

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries."""
        return self.retriever.search_batch([self.speller.correct(normalize(query)) for query in queries], k)
