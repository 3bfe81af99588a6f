"""Search all parts of an index as if they were one: the query is encoded and scored once, the parts do the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Unpack

from pixnar.base.errors import PixnarError
from pixnar.distributed.merge import merged
from pixnar.distributed.shard_server import HitDetails, ShardRequest, ShardResponse, ShardServer
from pixnar.distributed.shards import Shards
from pixnar.documents import Filter, parse
from pixnar.index import Index
from pixnar.search import DocumentHit, Hit
from pixnar.search.hits import Tokens
from pixnar.search.options import SearchKeywords, SearchOptions
from pixnar.search.ranker import Query, Stopwatch
from pixnar.search.searcher import named_first
from pixnar.search.spelling import Neighbour
from pixnar.table.table import part_of

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


class _AddedWords:
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
            speller = index.ranker.speller.with_words(_AddedWords(parts))
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

    def answered(self, query: Query, options: SearchOptions, lap: Stopwatch | None = None) -> list[DetailedHit]:
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
