"""Types of a search: its options, its hits, those of the decoder and its slow twin, and what can be searched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypedDict

from pixnar.base.errors import PixnarError
from pixnar.documents import Filter

Tokens = tuple[int, ...]
Order = Literal["slots", "any", "assigned"]


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The options of a search, the same for `Index`, explain, HTTP and shards.

    `allow`, `forbid` (document ids) and `where` restrict what may be found. With `beam`, a beam of that width looks for
    docids as in the paper; without, decoding is exact. `spelling` None: queries are corrected if `fit` decided so.

    >>> SearchOptions(k=3, forbid=["d1"]).restricted
    True
    """

    k: int = 10
    threshold: float | None = None
    allow: Iterable[str] | None = None
    forbid: Iterable[str] | None = None
    where: str | Filter | None = None
    beam: int = 0
    spelling: bool | None = None
    titles: bool = False  # hits have the titles of their documents

    def __post_init__(self) -> None:
        for name in ("allow", "forbid"):
            ids = getattr(self, name)
            if isinstance(ids, str):
                raise TypeError(f"{name} is one text: give a list of document ids")
            object.__setattr__(self, name, None if ids is None else list(ids))
        if self.beam < 0:
            raise PixnarError(f"a beam of width {self.beam}: give 1 or more, or 0 for exact decoding")

    @property
    def restricted(self) -> bool:
        """Whether some documents may not be found."""
        return self.allow is not None or self.forbid is not None or self.where is not None


class SearchKeywords(TypedDict, total=False):
    """Search options as keyword arguments, without k."""

    threshold: float | None
    allow: Iterable[str] | None
    forbid: Iterable[str] | None
    where: str | Filter | None
    beam: int
    spelling: bool | None


ANYTHING = SearchOptions()


class Hit(NamedTuple):
    """A document that was found: its id, its score, the docid that speaks best for it, and its title.

    The docid is empty where none speaks for it, and the title where there is none or it was not asked for.
    """

    id: str
    score: float
    docid: str
    title: str = ""

    def facts(self) -> dict[str, str | float]:
        """Id, score and docid by the names that JSON answers give them."""
        return {"doc_id": self.id, "score": self.score, "docid": self.docid}


class Generated(NamedTuple):
    """A docid that a query generates: its text, its tokens as people read them, and the documents it names."""

    docid: str
    score: float
    tokens: list[str]
    documents: tuple[str, ...]


class DocidHit(NamedTuple):
    """A docid that was found, and the allowed documents it names, in the order of their ids."""

    tokens: Tokens
    score: float
    documents: tuple[str, ...]


class DocumentHit(NamedTuple):
    """A document that was found, and its best docid."""

    doc_id: str
    score: float
    tokens: Tokens


class Retriever(Protocol):
    """Texts come in; for each the best documents come out, best first, none twice."""

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents, or as many as there are."""

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries, whose answers do not depend on each other."""
