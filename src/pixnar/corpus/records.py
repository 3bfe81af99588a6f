"""Records of a corpus: documents, docids, queries and judgements; the ids seen so far; rows that are not valid."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar.base.errors import CorpusError

Row = TypeVar("Row", bound=tuple[Any, ...])


class Document(NamedTuple):
    """One thing that can be found; `metadata` holds whatever else its row said."""

    doc_id: str
    title: str
    text: str
    metadata: dict[str, Any]


class DocidRow(NamedTuple):
    """One name of one document; a document has many, and a docid may name several documents."""

    doc_id: str
    docid: str


class Query(NamedTuple):
    """A search text."""

    query_id: str
    text: str


class Qrel(NamedTuple):
    """A judgement: how relevant a document is to a query; 0 and less mean not at all."""

    query_id: str
    doc_id: str
    score: int


class Batch(NamedTuple, Generic[Row]):
    """Some consecutive rows of one file with the line each came from, and the bad rows found among them."""

    file: str
    numbers: Sequence[int]
    rows: list[Row]
    bad: list[BadRow]

    def without(self, wrong: Sequence[tuple[int, BadRow]]) -> Batch[Row]:
        """The batch with the rows at some positions moved to the bad ones."""
        if not wrong:
            return self
        gone = {position for position, _ in wrong}
        keep = [position for position in range(len(self.rows)) if position not in gone]
        numbers, rows = [self.numbers[i] for i in keep], [self.rows[i] for i in keep]
        return Batch(self.file, numbers, rows, self.bad + [row for _, row in wrong])


def batches(name: str, rows: Iterable[Row], size: int = 4096) -> Iterator[Batch[Row]]:
    """Rows that no file holds, in batches; all of them are good."""
    rest, start = iter(rows), 1
    while found := list(islice(rest, size)):
        yield Batch(name, range(start, start + len(found)), found, [])
        start += len(found)


_hash = xxhash.xxh3_64_intdigest
_HALF = re.compile(r"[\ud800-\udfff]")


def is_text(text: str) -> bool:
    r"""Whether there is no half of a surrogate pair in it, which JSON can spell and UTF-8 cannot.

    >>> is_text("café"), is_text("\ud800")
    (True, False)
    """
    return text.isascii() or not _HALF.search(text)


class IdSet:
    """Which ids have been seen, as sorted 64-bit hashes; asked and told in batches.

    Two of n ids share a hash with probability about n² / 2⁶⁵: 1 in 370,000 for ten million ids.

    >>> seen = IdSet()
    >>> seen.add(["a", "b", "a"]).tolist()
    [True, True, False]
    >>> seen.contains(["b", "c"]).tolist()
    [True, False]
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []  # sorted, each more than twice as long as the next

    def __len__(self) -> int:
        return sum(run.size for run in self._runs)

    def add(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Add ids; True where an id is new, False from its second time on."""
        hashes = _hashes(ids)
        order = np.argsort(hashes, kind="stable")  # stable: of equal ids in one batch the first counts as new
        ordered = hashes[order]
        again = np.zeros(hashes.size, np.bool_)
        again[order[1:]] = ordered[1:] == ordered[:-1]
        new: NDArray[np.bool_] = ~(again | self._found(hashes))
        self._runs.append(ordered[new[order]])
        while len(self._runs) > 1 and self._runs[-2].size <= 2 * self._runs[-1].size:
            self._merge_last()
        return new

    def update(self, other: IdSet) -> None:
        """Add all ids of another set."""
        self._runs.extend(other._runs)

    def contains(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """True where an id has been added."""
        while len(self._runs) > 1:
            self._merge_last()
        return self._found(_hashes(ids))

    def _found(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        found = np.zeros(hashes.size, np.bool_)
        for run in self._runs:
            if run.size:
                found |= run[np.minimum(np.searchsorted(run, hashes), run.size - 1)] == hashes
        return found

    def _merge_last(self) -> None:
        merged = np.concatenate((self._runs[-2], self._runs[-1]))
        merged.sort(kind="stable")  # merges two sorted runs in linear time
        self._runs[-2:] = [merged]


def _hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    try:
        return np.fromiter(map(_hash, map(str.encode, ids)), np.uint64, len(ids))
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell
        encoded = (text.encode("utf-8", "surrogatepass") for text in ids)
        return np.fromiter(map(_hash, encoded), np.uint64, len(ids))


class BadRow(NamedTuple):
    """A row that cannot be used: its line, the kind of fault, and the fault with the value that is wrong."""

    number: int
    reason: str
    detail: str


class BadValueError(ValueError):
    """Raised by the parser of one row; the reader turns it into a `BadRow`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail or reason


class Skipped(Counter[tuple[str, str]]):
    """How many bad rows were skipped, by (file, reason); `total()` is their number.

    >>> skipped = Skipped({("docids.jsonl", "unknown document id"): 2, ("corpus.jsonl", "not valid JSON"): 1})
    >>> skipped.summary()
    'skipped 3 bad rows: 1 not valid JSON (corpus.jsonl), 2 unknown document id (docids.jsonl)'
    """

    def summary(self) -> str:
        """One line for people."""
        total = self.total()
        if not total:
            return "skipped no rows"
        parts = (f"{count:,} {reason} ({file})" for (file, reason), count in sorted(self.items()))
        return f"skipped {total:,} bad {'row' if total == 1 else 'rows'}: {', '.join(parts)}"


class BadRows:
    """What becomes of the bad rows of one pass over some files."""

    def __init__(self, skip: bool, skipped: Skipped) -> None:
        self._skip = skip
        self._skipped = skipped
        self._pass: Counter[tuple[str, str]] = Counter()

    def settle(self, file: str, bad: list[BadRow]) -> None:
        """Raise for the first of them, or count them all."""
        if not bad:
            return
        if not self._skip:
            first = min(bad)
            raise CorpusError(
                f"{file}:{first.number}: {first.detail}; correct the row, or leave out such rows with --skip-bad-rows"
            )
        for row in bad:
            key = file, row.reason
            self._pass[key] += 1
            # A file may be read twice (its ids alone, then its rows): the same bad rows must not count twice.
            self._skipped[key] = max(self._skipped[key], self._pass[key])


def shown(value: object) -> str:
    r"""A value as it may stand in a one-line message: quoted, escaped, cut short.

    >>> print(shown("two\nlines"))
    'two\nlines'
    """
    if isinstance(value, str) and len(value) > 80:
        return repr(value[:77]) + "…"
    text = repr(value)
    return text if len(text) <= 90 else text[:87] + "…"
