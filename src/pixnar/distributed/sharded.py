"""Sharded search: one server for each part of an index, the exact merge of their answers, and all parts as one index.

A part answers with the best of its documents, `depth` of them by each source. Whatever is among the `depth` best of the
whole is among the `depth` best of its own part, so the parts' answers hold every candidate that the whole would have;
`merged` leaves the others out again and fuses what is left as the whole does. Ties are broken as there: by the tokens
of the best docid, then by the bytes of the id. A shard server reads the encoder and the phrase rows only for docids
that were added after the fit.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.base.storage import in_memory
from pixnar.distributed.shards import Shards, read_places
from pixnar.documents import Filter, parse
from pixnar.documents.columns import Columns, Mask, word_bytes
from pixnar.fusion.fuse import DOCIDS, Expanded, Fusion, Top
from pixnar.fusion.postings import best
from pixnar.index import Index, manifest
from pixnar.index.files import ENCODER, HEAD
from pixnar.index.opening import open_ranker
from pixnar.runtime import HeadRows, QueryEncoder
from pixnar.scoring import ScoreRule
from pixnar.search import DocumentHit, Hit, SlotScores
from pixnar.search.query import QueryScorer
from pixnar.search.ranker import Floats, PreparedQuery, Ranker, Stopwatch
from pixnar.search.searcher import named_first
from pixnar.search.spelling import Neighbour
from pixnar.search.types import SearchKeywords, SearchOptions, Tokens
from pixnar.table import DocidTable
from pixnar.table.table import part_of

Ints = NDArray[np.int64]

_BEHIND = 1 << 40  # documents added after the fit stand behind all others, by id


class ShardCandidates(NamedTuple):
    """The candidates of one part, by id, and their scores by each source.

    `scores` are those of their docids in full, `tokens` their best docids. `places` says where they stand among the
    documents of the whole, as units of `tops` do, the best of each source whether or not they may be found; -1 - i is
    for those that were added after the fit, the i-th of `new`. Without a fusion there are neither columns nor tops.
    """

    doc_ids: list[str]
    scores: NDArray[np.float64]
    tokens: list[Tokens]
    places: Ints
    columns: dict[str, Floats]
    tops: dict[str, Top]
    new: list[str]


def merged(parts: Sequence[ShardCandidates], k: int, fusion: Fusion | None, depth: int) -> list[DocumentHit]:
    """The k best documents of the whole, given those of all its parts."""
    doc_ids = [doc_id for part in parts for doc_id in part.doc_ids]
    tokens = [docid for part in parts for docid in part.tokens]
    scores = np.concatenate([np.zeros(0), *(part.scores for part in parts)])

    def rank(number: int) -> tuple[float, Tokens, bytes]:
        return -float(scores[number]), tokens[number], word_bytes(doc_ids[number])

    if fusion is None:
        chosen = sorted(_near_top(scores, k).tolist(), key=rank)[:k]
        return [DocumentHit(doc_ids[i], float(scores[i]), tokens[i]) for i in chosen]
    decoded = sorted(_near_top(scores, depth).tolist(), key=rank)[:depth]
    parts = _numbered(parts)
    places = np.concatenate([np.zeros(0, np.int64), *(part.places for part in parts)])
    above = [_best([part.tops[name] for part in parts], depth) for name in (parts[0].tops if parts else ())]
    named = np.isin(places, np.concatenate([np.zeros(0, np.int64), *above]))
    named[decoded] = True
    order = np.array(sorted(np.flatnonzero(named).tolist(), key=doc_ids.__getitem__), np.int64)  # equals go by id
    columns: dict[str, Floats] = {DOCIDS: scores[order].astype(np.float32)}
    for name in parts[0].columns if parts else ():
        columns[name] = np.concatenate([part.columns[name] for part in parts])[order]
    top, fused = fusion.best(columns, k)
    return [DocumentHit(doc_ids[order[i]], float(fused[i]), tokens[order[i]]) for i in top.tolist()]


def _numbered(parts: Sequence[ShardCandidates]) -> list[ShardCandidates]:
    """The same with one number for every document that was added after the fit, as the whole counts them."""
    new = sorted((doc_id for part in parts for doc_id in part.new), key=word_bytes)
    number = {doc_id: _BEHIND + i for i, doc_id in enumerate(new)}
    numbered = []
    for part in parts:
        numbers = np.array([number[doc_id] for doc_id in part.new], np.int64)

        def places(given: Ints, numbers: Ints = numbers) -> Ints:
            out = given.copy()
            out[given < 0] = numbers[-1 - given[given < 0]]
            return out

        tops = {name: Top(places(top.units), top.scores) for name, top in part.tops.items()}
        numbered.append(part._replace(places=places(part.places), tops=tops))
    return numbered


def _best(tops: Sequence[Top], depth: int) -> Ints:
    """The places that a source scores highest in all parts together; among equals the lower place wins."""
    places, scores = np.concatenate([top.units for top in tops]), np.concatenate([top.scores for top in tops])
    by_place = np.argsort(places)
    chosen: Ints = places[by_place[best(scores[by_place], depth)]]
    return chosen


def _near_top(scores: NDArray[np.float64], k: int) -> Ints:
    """Those that are no worse than the k-th."""
    if k <= 0:
        return np.zeros(0, np.int64)
    if k >= len(scores):
        return np.arange(len(scores))
    return np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])


_NOTHING = np.zeros((0, 0), np.float32)
_NO_TOKENS = np.zeros(0, np.uint32)


class ShardRequest(NamedTuple):
    """A query for a part, with all that the model says of it, and which documents to return."""

    text: str  # normalised
    own: Tokens  # the query as a docid, which may be one
    pooled: NDArray[np.float32]
    scores: SlotScores
    expanded: Expanded | None
    k: int  # documents, or with a fusion candidates of each source
    allow: list[str] | None
    forbid: list[str] | None
    where: str | None


class ShardResponse(NamedTuple):
    """The candidates of a part, its documents that the query names word by word, and keys of added documents."""

    candidates: ShardCandidates
    named: list[str]
    new_keys: frozenset[str]


class HitDetails(NamedTuple):
    """The docid of a hit as it was written, and the title and metadata of its document."""

    docid: str
    title: str
    metadata: dict[str, Any]


class _Lenient(Filter):
    """A filter over a part, where a key may be missing that other parts have: that is judged for the whole index."""

    def mask(self, columns: Columns, n: int, *, strict: bool = True, known: Container[str] = ()) -> Mask:
        """Which of the n documents meet it; a key without a column is one that all of them lack."""
        return super().mask(columns, n, strict=False)


class ShardServer:
    """An open part of an index. Safe for many threads."""

    def __init__(self, ranker: Ranker, places: NDArray[np.int64]) -> None:
        """`places` are the numbers that the documents of the part had when the table of the whole was built."""
        self.ranker, self.places = ranker, places

    @classmethod
    def open(
        cls, shards: Shards, number: int, *, sources: str = "all", mapped: bool = True, warm_up: bool = False
    ) -> ShardServer:
        """Open one part of what `split` wrote."""
        content, folder = shards.check(number), shards.parts[number]
        rows = HeadRows.load(folder / HEAD, verify=False)

        @functools.cache
        def encoder() -> QueryEncoder:
            shards.check(number)
            return QueryEncoder.load(folder / ENCODER, verify=False)

        with contextlib.nullcontext() if mapped else in_memory():
            table = shards.table(number)
            rule = ScoreRule.from_dict(content["rule"])
            ranker = open_ranker(
                folder,
                content | {"fusion": manifest.fusion_of(content, sources)},
                table,
                lambda priors, log_z: QueryScorer(rows, log_z, priors, rule),
                rows,
                lambda texts: encoder().query_vectors(texts, 1)[1],
                shortlist=False,
                warm_up=warm_up,
            )
            places = read_places(folder)
        shards.check(number)  # the folder may have been replaced while it was read
        return cls(ranker, places)

    @property
    def table(self) -> DocidTable:
        """The docids of its documents."""
        return self.ranker.table

    def answer(self, request: ShardRequest) -> ShardResponse:
        """The best of its documents, by each source."""
        condition = None if request.where is None else parse(request.where)
        where = None if condition is None else _Lenient(condition.text, condition.condition)
        options = SearchOptions(allow=request.allow, forbid=request.forbid, where=where)
        new_keys = frozenset() if condition is None else frozenset(self.table.snapshot().new_keys)
        named = sorted(self.ranker.allowed(self.table.named(request.own), options)) if request.own else []
        return ShardResponse(self._candidates(request, options), named, new_keys)

    def details(self, hits: Sequence[tuple[str, Tokens]]) -> list[HitDetails]:
        """Details of hits among its documents, which somebody may have removed a moment ago."""
        documents = self.table.described([doc_id for doc_id, _ in hits])
        texts = self.table.spellings([tokens for _, tokens in hits])
        return [
            HitDetails(text, *((document.title, document.metadata) if document else ("", {})))
            for text, document in zip(texts, documents, strict=True)
        ]

    def lookup(self, words: Sequence[str]) -> list[list[Neighbour] | None]:
        """The words one edit away among those of docids that were added to this part; see `AddedWords`."""
        speller = self.ranker.current_speller()
        if speller is None or speller.added is None:
            return [[] for _ in words]
        return speller.added.lookup(words)

    def _candidates(self, request: ShardRequest, options: SearchOptions) -> ShardCandidates:
        ranker = self.ranker
        if ranker.fusion is None:
            hits = ranker.decode(request.scores, request.k, options)
            ids, tokens = [hit.doc_id for hit in hits], [hit.tokens for hit in hits]
            nowhere = np.full(len(hits), -1, np.int64)
            return ShardCandidates(ids, np.array([hit.score for hit in hits], np.float64), tokens, nowhere, {}, {}, [])
        query = PreparedQuery(request.text, _NOTHING, request.pooled, _NO_TOKENS, None)
        candidates = ranker.candidates(query, request.scores, request.k, options, expanded=lambda _: request.expanded)
        numbering, known = candidates.snapshot.numbering, len(self.places)
        own = numbering.units(candidates.numbers)
        named = np.unique(np.concatenate([own, *(top.units for top in candidates.tops.values())]))
        new = named[named >= known]

        def places(units: NDArray[np.int64]) -> NDArray[np.int64]:
            out = -1 - np.searchsorted(new, units)
            out[units < known] = self.places[units[units < known]]
            return out

        return ShardCandidates(
            candidates.doc_ids,
            candidates.docid_scores,
            [candidates.tokens(i) for i in range(len(candidates))],
            places(own),
            {name: column for name, column in candidates.columns.items() if name != DOCIDS},
            {name: Top(places(top.units), top.scores) for name, top in candidates.tops.items()},
            candidates.snapshot.doc_ids(numbering.numbers(new).tolist()),
        )


Named = list[tuple[str, Tokens]]


class ShardServers(Protocol):
    """The servers of all parts; every call gives one answer for each part, in their order."""

    def answers(self, requests: Sequence[ShardRequest]) -> list[ShardResponse]:
        """What each part finds."""
        ...

    def details(self, hits: Sequence[Named]) -> list[list[HitDetails]]:
        """Details of hits, from the part of each."""
        ...

    def lookup(self, words: Sequence[str]) -> list[list[list[Neighbour] | None]]:
        """What each part knows of words, by the docids that were added to it."""
        ...


class LocalShardServers:
    """Shard servers in this process, one thread for each."""

    def __init__(self, parts: Sequence[ShardServer]) -> None:
        self.parts = list(parts)
        self._pool = ThreadPoolExecutor(len(self.parts))

    @classmethod
    def open(cls, shards: Shards, **options: Any) -> LocalShardServers:
        """Open all parts of a folder; the options are those of `ShardServer.open`."""
        return cls([ShardServer.open(shards, number, **options) for number in range(len(shards.parts))])

    def answers(self, requests: Sequence[ShardRequest]) -> list[ShardResponse]:
        """See `ShardServers`."""
        return list(self._pool.map(lambda pair: pair[0].answer(pair[1]), zip(self.parts, requests, strict=True)))

    def details(self, hits: Sequence[Named]) -> list[list[HitDetails]]:
        """See `ShardServers`."""
        return [part.details(own) for part, own in zip(self.parts, hits, strict=True)]

    def lookup(self, words: Sequence[str]) -> list[list[list[Neighbour] | None]]:
        """See `ShardServers`."""
        return [part.lookup(words) for part in self.parts]


class _AddedToParts:
    """The words of docids that were added to any part; parts are asked only about words that the lexicon lacks."""

    def __init__(self, parts: ShardServers) -> None:
        self._parts = parts

    def lookup(self, words: Sequence[str]) -> list[list[Neighbour] | None]:
        """See `AddedWords`."""
        return [
            None if None in neighbours else sorted({near for part in neighbours for near in part or ()})
            for neighbours in zip(*self._parts.lookup(words), strict=True)
        ]


class DetailedHit(NamedTuple):
    """A hit with the title and metadata of its document."""

    hit: Hit
    title: str
    metadata: dict[str, Any]


class Sharded:
    """An index in parts. `Sharded.open(folder).search(text)` answers as the index that was cut would, bit by bit.

    The encoder, the phrase rows and the shortlist are those of the first part, which all parts share. A beam is not
    exact, and what it finds would depend on the parts: it is refused.
    """

    def __init__(self, shards: Shards, index: Index, parts: ShardServers) -> None:
        """`index` is the first part, opened as an index; of its docids nothing is read."""
        self.shards, self.index, self.parts = shards, index, parts
        if index.ranker.speller is not None:
            speller = index.ranker.speller.with_words(_AddedToParts(parts))
            index.searcher.speller = lambda: speller
        self._count = len(shards.parts)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        parts: ShardServers | None = None,
        *,
        sources: str = "all",
        threads: int = 2,
        shortlist: bool = True,
        cut: str | None = None,
    ) -> Sharded:
        """Open a folder that `split` wrote; without `parts` they are all opened here. For `cut` see `Shards.open`."""
        shards = Shards.open(folder, cut)
        index = Index.load(shards.parts[0], threads=threads, sources=sources, shortlist=shortlist)
        shards.check(0)  # the folder may have been replaced while it was read
        return cls(shards, index, parts or LocalShardServers.open(shards, sources=sources))

    def search(self, query: str, k: int = 10, **options: Unpack[SearchKeywords]) -> list[Hit]:
        """The k best documents; see `Index.search`."""
        asked = SearchOptions(k=k, **options)
        prepared = self.index.queries([query], asked.spelling)[0]
        return [detailed.hit._replace(title=detailed.title) for detailed in self.answered(prepared, asked)]

    def answered(self, query: PreparedQuery, options: SearchOptions, lap: Stopwatch | None = None) -> list[DetailedHit]:
        """The best documents of a query, with details."""
        lap, ranker, k = lap or Stopwatch(), self.index.ranker, options.k
        if options.beam:
            raise PixnarError("a beam depends on the parts of an index: decode exactly, or search the whole index")
        condition = parse(options.where) if isinstance(options.where, str) else options.where
        scores = ranker.scored(query)
        own = self.index.table.encode(query.text) if query.text else ()
        depth = k if ranker.fusion is None else max(ranker.depth, k)
        expanded = ranker.expanded(query)
        lap("score")
        where = None if condition is None else condition.text
        requests = [
            ShardRequest(query.text, own, query.pooled, scores, expanded, depth, *ids, where)
            for ids in zip(self._by_part(options.allow), self._by_part(options.forbid), strict=True)
        ]
        answers = self.parts.answers(requests)
        if condition is not None:
            self._check(condition, answers)
        lap("parts")
        rows = merged([answer.candidates for answer in answers], k, ranker.fusion, depth)
        named = {doc_id for answer in answers for doc_id in answer.named}
        if named and k:
            rows = named_first(rows, named, own, k)
        hits = self._detailed([row for row in rows if options.threshold is None or row.score >= options.threshold])
        lap("merge")
        return hits

    def _detailed(self, rows: Sequence[DocumentHit]) -> list[DetailedHit]:
        owners = [part_of(row.doc_id, self._count) for row in rows]
        by_part: list[Named] = [[] for _ in range(self._count)]
        for owner, row in zip(owners, rows, strict=True):
            by_part[owner].append((row.doc_id, row.tokens))
        details = list(map(iter, self.parts.details(by_part)))
        hits = []
        for owner, row in zip(owners, rows, strict=True):
            docid, title, metadata = next(details[owner])
            hits.append(DetailedHit(Hit(row.doc_id, row.score, docid), title, metadata))
        return hits

    def _by_part(self, doc_ids: Iterable[str] | None) -> list[list[str] | None]:
        """Ids sorted to their parts; a part is asked about its own only."""
        if doc_ids is None:
            return [None] * self._count
        sorted_out: list[list[str]] = [[] for _ in range(self._count)]
        for doc_id in doc_ids:
            sorted_out[part_of(doc_id, self._count)].append(doc_id)
        return list(sorted_out)

    def _check(self, condition: Filter, answers: Sequence[ShardResponse]) -> None:
        """A key that no document of any part has is an error, as it is in the whole."""
        known = set(self.shards.keys).union(*(answer.new_keys for answer in answers))
        for key in condition.keys:
            if key not in known:
                raise condition.no_column(key, self.shards)
