"""Search options: how many documents, which of them may be found, and how they are looked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from pixnar.base.errors import PixnarError
from pixnar.documents import Filter


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
