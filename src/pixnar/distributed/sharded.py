"""Searching all parts of an index as if they were one: the query is encoded and scored once, the parts do the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Unpack

from pixnar.base.errors import PixnarError
from pixnar.distributed.merge import merged
from pixnar.distributed.part import Answer, Asked, Part, Told
from pixnar.distributed.shards import Shards
from pixnar.documents import Filter, parse
from pixnar.index import Index
from pixnar.search import DocumentHit, Hit
from pixnar.search.hits import Tokens
from pixnar.search.options import SearchKeywords, SearchOptions
from pixnar.search.ranker import Query, Stopwatch
from pixnar.search.searcher import named_first
from pixnar.search.spelling import Neighbour, Speller
from pixnar.table.table import part_of

Named = list[tuple[str, Tokens]]


class Parts(Protocol):
    """How the parts are reached; all calls give one answer for each part, in their order."""

    def answers(self, asked: Sequence[Asked]) -> list[Answer]:
        """What each part finds."""
        ...

    def told(self, hits: Sequence[Named]) -> list[list[Told]]:
        """What each part knows of documents of its own."""
        ...

    def lookup(self, words: Sequence[str]) -> list[list[list[Neighbour] | None]]:
        """What each part knows of words, by the docids that were added to it."""
        ...


class LocalParts:
    """Parts in this process, one thread for each."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self._pool = ThreadPoolExecutor(len(self.parts))

    @classmethod
    def open(cls, shards: Shards, **options: Any) -> LocalParts:
        """Open all parts of a folder; the options are those of `Part.open`."""
        return cls([Part.open(shards, number, **options) for number in range(len(shards.parts))])

    def answers(self, asked: Sequence[Asked]) -> list[Answer]:
        """See `Parts`."""
        return list(self._pool.map(lambda pair: pair[0].answer(pair[1]), zip(self.parts, asked, strict=True)))

    def told(self, hits: Sequence[Named]) -> list[list[Told]]:
        """See `Parts`."""
        return [part.told(some) for part, some in zip(self.parts, hits, strict=True)]

    def lookup(self, words: Sequence[str]) -> list[list[list[Neighbour] | None]]:
        """See `Parts`."""
        return [part.lookup(words) for part in self.parts]


class _AddedWords:
    """The words of docids that were added to any part; parts are asked only about words that the lexicon lacks."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def lookup(self, words: Sequence[str]) -> list[list[Neighbour] | None]:
        """See `AddedWords`."""
        return [
            None if any(one is None for one in found) else sorted({near for one in found for near in one or ()})
            for found in zip(*self._parts.lookup(words), strict=True)
        ]


class ToldHit(NamedTuple):
    """A hit with what is known of its document."""

    hit: Hit
    title: str
    metadata: dict[str, Any]


class Sharded:
    """An index in parts. `Sharded.open(folder).search(text)` answers as the index that was cut would, bit by bit.

    The encoder, the phrase rows and the shortlist are those of the first part, which all parts share. A beam is not
    exact, and what it finds would depend on the parts: it is refused.
    """

    def __init__(self, shards: Shards, index: Index, parts: Parts) -> None:
        """`index` is the first part, opened as an index; of its docids nothing is read."""
        self.shards, self.index, self.parts = shards, index, parts
        if index.ranker.speller is not None:
            speller = Speller(index.ranker.speller.lexicon, _AddedWords(parts))
            index.searcher.speller = lambda: speller
        self._count = len(shards.parts)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        parts: Parts | None = None,
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
        return cls(shards, index, parts or LocalParts.open(shards, sources=sources))

    def search(self, query: str, k: int = 10, **options: Unpack[SearchKeywords]) -> list[Hit]:
        """The k best documents; see `Index.search`."""
        asked = SearchOptions(k=k, **options)
        prepared = self.index.queries([query], asked.spelling)[0]
        return [one.hit._replace(title=one.title) for one in self.answered(prepared, asked)]

    def answered(self, query: Query, options: SearchOptions, lap: Stopwatch | None = None) -> list[ToldHit]:
        """The best documents of a query, and what is known of them."""
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
        asked = [
            Asked(query.text, own, query.pooled, scores, expanded, depth, *ids, where)
            for ids in zip(self._by_part(options.allow), self._by_part(options.forbid), strict=True)
        ]
        answers = self.parts.answers(asked)
        if condition is not None:
            self._check(condition, answers)
        lap("parts")
        rows = merged([answer.found for answer in answers], k, ranker.fusion, depth)
        named = {doc_id for answer in answers for doc_id in answer.named}
        if named and k:
            rows = named_first(rows, named, own, k)
        told = self._told([row for row in rows if options.threshold is None or row.score >= options.threshold])
        lap("merge")
        return told

    def _told(self, rows: Sequence[DocumentHit]) -> list[ToldHit]:
        owners = [part_of(row.doc_id, self._count) for row in rows]
        wanted: list[Named] = [[] for _ in range(self._count)]
        for owner, row in zip(owners, rows, strict=True):
            wanted[owner].append((row.doc_id, row.tokens))
        found = list(map(iter, self.parts.told(wanted)))
        hits = []
        for owner, row in zip(owners, rows, strict=True):
            docid, title, metadata = next(found[owner])
            hits.append(ToldHit(Hit(row.doc_id, row.score, docid), title, metadata))
        return hits

    def _by_part(self, doc_ids: Iterable[str] | None) -> list[list[str] | None]:
        """Ids sorted to their parts; a part is asked about its own only."""
        if doc_ids is None:
            return [None] * self._count
        sorted_out: list[list[str]] = [[] for _ in range(self._count)]
        for doc_id in doc_ids:
            sorted_out[part_of(doc_id, self._count)].append(doc_id)
        return list(sorted_out)

    def _check(self, condition: Filter, answers: Sequence[Answer]) -> None:
        """A key that no document of any part has is an error, as it is in the whole."""
        known = set(self.shards.keys).union(*(answer.new_keys for answer in answers))
        for key in condition.keys:
            if key not in known:
                raise condition.no_column(key, self.shards)
