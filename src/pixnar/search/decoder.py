"""Exact decoding: the best docids, or documents, of a table under the scores of one query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Literal, NamedTuple, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar import _native
from pixnar.documents import Filter
from pixnar.runtime.factors import DocidFactors
from pixnar.search.query import SlotScores, as_floats
from pixnar.search.types import DocidHit, DocumentHit, Order, Tokens
from pixnar.table import DocidTable
from pixnar.table.overlay import Bits
from pixnar.table.snapshot import Snapshot

Engine = Literal["auto", "brute", "best-first", "inverted", "enumerate", "accumulate"]
Aggregation = Literal["max", "logsumexp"] | int

_ORDERS = ("slots", "any", "assigned")
ENGINES = ("auto", "brute", "best-first", "inverted", "enumerate", "accumulate", "beam")


Rows = NDArray[np.uint32]
Numbers = NDArray[np.int64]


class _NativeAnswer(NamedTuple):
    """What the native side answers."""

    segments: Rows
    rows: Rows
    documents: Rows
    scores: NDArray[np.float64]
    exact: bool
    bound: float
    gap: float
    engine: str
    work: int


class DecodeOptions(TypedDict, total=False):
    """How to decode, and what may be found.

    `work_limit` ends the search after about so many rows and nodes; the answer then says what it is worth. `allow`,
    `forbid` (document ids) and `where` (`country = "de" and price < 10`) restrict what may be found.
    """

    order: Order
    length_norm: float
    engine: Engine
    work_limit: int
    allow: Iterable[str] | None
    forbid: Iterable[str] | None
    where: str | Filter | None


@dataclass(frozen=True)
class _Decoding:
    """`DecodeOptions` with their defaults, and what the method called adds to them."""

    order: str = "slots"
    length_norm: float = 0.0
    engine: str = "auto"
    work_limit: int = 0
    allow: Iterable[str] | None = None
    forbid: Iterable[str] | None = None
    where: str | Filter | None = None
    documents: bool = False
    top: int = 1
    width: int = 0


Hit = TypeVar("Hit", DocidHit, DocumentHit)


class Decoded(Generic[Hit]):
    """What was found, best first, and what is known about what was not.

    With ``exact`` nothing better exists. Otherwise no docid (or document) that was left out scores more than ``bound``,
    which is at most ``gap`` more than the last hit; both are infinite after a beam, which proves nothing, and ``gap``
    is infinite when fewer than k were found before the work limit. ``engine`` says how it was found, ``work`` how many
    rows and nodes were looked at.
    """

    def __init__(self, found: _NativeAnswer, hits: Callable[[], Iterator[Hit]], snapshot: Snapshot) -> None:
        """Made by a `Decoder`."""
        self._found, self.snapshot = found, snapshot
        self.documents: Numbers = found.documents.astype(np.int64)  # their numbers in the snapshot
        self.exact, self.bound, self.gap = found.exact, found.bound, found.gap
        self.engine, self.work = found.engine, found.work
        self.scores = found.scores
        self._make: Callable[[], Iterator[Hit]] = hits

    @cached_property
    def hits(self) -> list[Hit]:
        """The hits; looked up when first asked for."""
        return list(self._make())

    @cached_property
    def doc_ids(self) -> list[str]:
        """The documents found, without their docids; only of documents."""
        return self.snapshot.doc_ids(self.documents.tolist())

    def tokens(self, place: int) -> Tokens:
        """The docid of the hit at a place, or the best docid of the document there."""
        return _tokens(self.snapshot, self._found.segments[place], self._found.rows[place])

    def __repr__(self) -> str:
        proof = "exact" if self.exact else f"off by at most {self.gap:g}"
        return f"Decoded({len(self.scores)} hits, {proof}, engine {self.engine!r})"


class DocumentSearch:
    """A search for documents by one query in one state of a table; made by a `Decoder`."""

    def __init__(
        self, snapshot: Snapshot, allowed: Bits | None, run: Callable[[int, Bits | None], _NativeAnswer]
    ) -> None:
        self.snapshot, self._allowed, self._run = snapshot, allowed, run

    def best(self, k: int) -> Decoded[DocumentHit]:
        """The k best documents of all that may be found."""
        return self._decoded(k, self._allowed)

    def among(self, numbers: Numbers) -> Decoded[DocumentHit]:
        """Those of some documents, given by their numbers in the snapshot, that may be found."""
        return self._decoded(len(numbers), self.snapshot.only(numbers, self._allowed))

    def _decoded(self, k: int, allowed: Bits | None) -> Decoded[DocumentHit]:
        found = self._run(k, allowed)

        def hits() -> Iterator[DocumentHit]:
            for i, doc_id in enumerate(decoded.doc_ids):
                yield DocumentHit(doc_id, float(found.scores[i]), decoded.tokens(i))

        decoded: Decoded[DocumentHit] = Decoded(found, hits, self.snapshot)
        return decoded


class Decoder:
    """Finds docids and documents in a table. Made once for a model; safe to use from many threads.

    `floor` holds what each token scores where a query does not name it; without one such a docid is not found.
    `factors` multiply the scores of docids; without them all factors are 1.
    docs/decoding.md says what a score is. Searching needs a bound for every docid, and making these reads the whole
    table: that is done here or, without `warm_up`, by the first query.

    >>> table = DocidTable.in_memory({(1, 2): ["d1"], (1, 3): ["d2"]}, vocab_size=4)
    >>> decoder = Decoder(table, slots=3)
    >>> scores = SlotScores.sparse([([1], [2.0]), ([2, 3], [0.5, 1.0]), ([], [])], ends=[0, 0, 0])
    >>> decoder.documents(scores, k=1).hits
    [DocumentHit(doc_id='d2', score=3.0, tokens=(1, 3))]
    """

    def __init__(
        self,
        table: DocidTable,
        *,
        slots: int,
        floor: ArrayLike | None = None,
        factors: DocidFactors | None = None,
        threads: int = 0,
        warm_up: bool = True,
    ) -> None:
        if not 1 <= slots <= _native.MOST_SLOTS:
            raise ValueError(f"{slots} slots: give 1 to {_native.MOST_SLOTS}")
        values = None if floor is None else as_floats(floor, "floors")
        if values is not None and len(values) != table.vocab_size:
            raise ValueError(f"{len(values)} floors for {table.vocab_size} tokens: give one for each token")
        self._table, self._size, self._slots, self._threads = table, table.vocab_size, slots, threads
        self._floor = _native.Floor(values)
        self._factors = factors
        self._lock = threading.Lock()
        self._levels: tuple[_native.DocidTable, _native.Levels, _native.Factors | None] | None = None
        self._ready: tuple[Snapshot, _native.SearchSpace] | None = None
        if warm_up:
            self.warm_up()

    def warm_up(self) -> None:
        """Read the table and make ready for searching; the first query after a change does what is left of it."""
        self._space()

    @property
    def table(self) -> DocidTable:
        """What is searched."""
        return self._table

    @property
    def slots(self) -> int:
        """How many slots queries have."""
        return self._slots

    def docids(self, scores: SlotScores, k: int = 10, **options: Unpack[DecodeOptions]) -> Decoded[DocidHit]:
        """The k best docids."""
        return self._docids(scores, k, _Decoding(**options))

    def beam(
        self, scores: SlotScores, k: int = 10, *, width: int = 10, **options: Unpack[DecodeOptions]
    ) -> Decoded[DocidHit]:
        """The k best docids that a beam of some width comes across; the paper's way, and not exact."""
        if width < 1:
            raise ValueError(f"a beam of width {width}: give 1 or more")
        return self._docids(scores, k, replace(_Decoding(**options), engine="beam", width=width))

    def documents(
        self, scores: SlotScores, k: int = 10, *, aggregate: Aggregation = "max", **options: Unpack[DecodeOptions]
    ) -> Decoded[DocumentHit]:
        """The k best documents, each by its best docid, or the log of the sum of exp over its best n, or over all."""
        return self.search(scores, aggregate=aggregate, **options).best(k)

    def search(
        self, scores: SlotScores, *, aggregate: Aggregation = "max", **options: Unpack[DecodeOptions]
    ) -> DocumentSearch:
        """A search for documents in the table as it is now; for the options see `DecodeOptions`."""
        named = {"max": 1, "logsumexp": 0}
        if aggregate not in named and not (isinstance(aggregate, int) and aggregate >= 1):
            raise ValueError(f"aggregate {aggregate!r}: give max, logsumexp or a number of docids, 1 or more")
        top = aggregate if isinstance(aggregate, int) else named[aggregate]
        decoding = replace(_Decoding(**options), documents=True, top=top)
        snapshot, space, allowed = self._view(decoding)
        return DocumentSearch(snapshot, allowed, lambda k, mask: self._run(space, scores, k, decoding, mask))

    def _docids(self, scores: SlotScores, k: int, options: _Decoding) -> Decoded[DocidHit]:
        snapshot, space, allowed = self._view(options)
        found = self._run(space, scores, k, options, allowed)

        def hits() -> Iterator[DocidHit]:
            places = zip(found.segments.tolist(), found.rows.tolist(), found.scores.tolist(), strict=True)
            for segment, row, score in places:
                named = snapshot.doc_ids(space.named(segment, row, allowed).tolist())
                yield DocidHit(_tokens(snapshot, segment, row), score, tuple(named))

        return Decoded(found, hits, snapshot)

    def _run(
        self,
        space: _native.SearchSpace,
        scores: SlotScores,
        k: int,
        options: _Decoding,
        allowed: NDArray[np.uint64] | None,
    ) -> _NativeAnswer:
        if scores.slots != self._slots:
            raise ValueError(f"the query has {scores.slots} slots, the decoder {self._slots}")
        size = self._size
        if scores.is_dense and len(scores.scores) != self._slots * size:
            raise ValueError(f"dense scores of {len(scores.scores) // self._slots} tokens, the vocabulary has {size}")
        if len(scores.tokens) and int(scores.tokens.max()) >= size:
            raise ValueError(f"token id {scores.tokens.max()} is not below the vocabulary size {size}")
        engines = ENGINES if options.width else ENGINES[:-1]  # the beam has a call of its own
        if options.order not in _ORDERS or options.engine not in engines:
            raise ValueError(
                f"order {options.order!r}, engine {options.engine!r}: orders are {_ORDERS}, engines {engines}"
            )
        if k < 0 or options.work_limit < 0:
            raise ValueError(f"k = {k}, work_limit = {options.work_limit}: neither can be negative")
        return _NativeAnswer(
            *space.decode(
                self._floor,
                scores.tokens,
                scores.scores,
                scores.offsets,
                scores.ends,
                scores.is_dense,
                k,
                _ORDERS.index(options.order),
                options.length_norm,
                ENGINES.index(options.engine),
                options.work_limit,
                options.documents,
                options.top,
                options.width,
                allowed,
            )
        )

    def _view(self, options: _Decoding) -> tuple[Snapshot, _native.SearchSpace, NDArray[np.uint64] | None]:
        """What the table is now, and the documents of it that the options allow."""
        for name in ("allow", "forbid"):
            if isinstance(getattr(options, name), str):
                raise ValueError(f"{name} is one text: give a list of document ids")
        snapshot, space = self._space()
        restricted = options.allow is not None or options.forbid is not None or options.where is not None
        allowed = snapshot.allowed(options.allow, options.forbid, options.where) if restricted else None
        return snapshot, space, allowed

    def _space(self) -> tuple[Snapshot, _native.SearchSpace]:
        """What the table is now; only what changed since the last time is prepared again."""
        snapshot = self._table.snapshot()
        with self._lock:
            if self._ready is None or self._ready[0].version != snapshot.version:
                if self._levels is None or self._levels[0] is not snapshot.table:
                    levels = _native.Levels(snapshot.table, self._floor, self._slots, self._threads)
                    self._levels = snapshot.table, levels, self._factors_of(snapshot.table)
                _, levels, factors = self._levels
                space = _native.SearchSpace(snapshot.table, levels, snapshot.dead, snapshot.documents.rank, factors)
                if snapshot.added:
                    added = snapshot.added
                    levels = _native.Levels(added.table, self._floor, self._slots, 1)
                    factors = self._factors_of(added.table)
                    space.add(added.table, levels, added.documents, added.twins, added.keys, factors)
                self._ready = snapshot, space
            return self._ready

    def _factors_of(self, table: _native.DocidTable) -> _native.Factors | None:
        if self._factors is None:
            return None
        return _native.Factors(table, self._factors.classes(table), self._factors.values)


def _tokens(snapshot: Snapshot, segment: int, row: int) -> Tokens:
    table = snapshot.added.table if segment and snapshot.added else snapshot.table
    return tuple(table.tokens(int(row)).tolist())
