"""A shard server: one part of an index, opened to answer for its documents.

The encoder and the phrase rows are read only for docids that were added after the fit.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.storage import in_memory
from pixnar.distributed.merge import ShardCandidates
from pixnar.distributed.shards import Shards, read_places
from pixnar.documents import Filter
from pixnar.documents.columns import Columns, Mask
from pixnar.documents.filters import parse
from pixnar.fusion.fuse import DOCIDS as BY_DOCIDS
from pixnar.fusion.fuse import Expanded, Top
from pixnar.index import manifest
from pixnar.index.files import ENCODER, HEAD
from pixnar.index.opening import open_ranker
from pixnar.runtime import HeadRows, QueryEncoder
from pixnar.scoring import ScoreRule
from pixnar.search import SlotScores
from pixnar.search.hits import Tokens
from pixnar.search.options import SearchOptions
from pixnar.search.query import QueryScorer
from pixnar.search.ranker import Query, Ranker
from pixnar.search.spelling import Neighbour
from pixnar.table import DocidTable

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
        query = Query(request.text, _NOTHING, request.pooled, _NO_TOKENS, None)
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
            {name: column for name, column in candidates.columns.items() if name != BY_DOCIDS},
            {name: Top(places(top.units), top.scores) for name, top in candidates.tops.items()},
            candidates.snapshot.doc_ids(numbering.numbers(new).tolist()),
        )
