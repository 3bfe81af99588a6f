"""The ranker: decodes a prepared query, gathers what other sources say of the candidates, and adds it up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import InitVar, dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, TEXT, Expanded, Fusion, Sources, Top, needed_by
from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.terms import Ngrams
from pixnar.fusion.vectors import DocidVectors
from pixnar.runtime import HeadRows
from pixnar.runtime.factors import DocidFactors
from pixnar.search import Decoded, Decoder, DocidHit, DocumentHit, SlotScores
from pixnar.search.decoder import DocumentSearch
from pixnar.search.live import Encode, Live, LiveSources
from pixnar.search.query import ArrayHead, QueryScorer
from pixnar.search.spelling import Speller
from pixnar.search.types import ANYTHING, SearchOptions, Tokens
from pixnar.table import DocidTable
from pixnar.table.journal import Difference
from pixnar.table.snapshot import Snapshot

if TYPE_CHECKING:
    from pixnar.runtime.shortlist import Shortlist

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_AT_ONCE = 16  # items of each thread


class PreparedQuery(NamedTuple):
    """A query on its way: normalised text, slot vectors, pooled vector, own n-grams, shortlist.

    `original` is the normalised text as it was asked, if its spelling was corrected; else it is empty.
    """

    text: str
    x: Floats
    pooled: Floats
    own: NDArray[np.uint32]
    tokens: NDArray[np.uint32] | None
    original: str = ""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Documents that may answer a query, in the order of their ids, with a column of scores per source.

    They are numbers of the snapshot that was decoded; `places` are where the runs of the decoder have them, one run
    behind the other. `tops` are the best units of each source that scores all documents, whether or not they may be
    found.
    """

    numbers: Ints
    columns: dict[str, Floats]
    decoded: list[Decoded[DocumentHit]]
    places: Ints
    tops: dict[str, Top]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def snapshot(self) -> Snapshot:
        """The state of the table that the numbers are of."""
        return self.decoded[0].snapshot

    @cached_property
    def doc_ids(self) -> list[str]:
        """The ids of all candidates; a search looks up those of its hits alone."""
        return self.snapshot.doc_ids(self.numbers.tolist())

    @property
    def docid_scores(self) -> NDArray[np.float64]:
        """The scores of their docids in full."""
        scores: NDArray[np.float64] = np.concatenate([run.scores for run in self.decoded])[self.places]
        return scores

    def tokens(self, i: int) -> Tokens:
        """The best docid of a candidate."""
        place = int(self.places[i])
        for run in self.decoded:
            if place < len(run.documents):
                return run.tokens(place)
            place -= len(run.documents)
        raise IndexError(f"candidate {i} is in no run")

    def hits(self, chosen: Ints, scores: Floats) -> list[DocumentHit]:
        """Some of them with their ids, these scores and their best docids."""
        doc_ids = self.snapshot.doc_ids(self.numbers[chosen].tolist())
        return [
            DocumentHit(doc_id, score, self.tokens(i))
            for doc_id, i, score in zip(doc_ids, chosen.tolist(), scores[chosen].tolist(), strict=True)
        ]


class Stopwatch:
    """Microseconds spent in each stage since the last one ended."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, stage: str) -> None:
        """The stage ends now."""
        now = time.perf_counter()
        self.spent[stage] = self.spent.get(stage, 0.0) + (now - self._last) * 1e6
        self._last = now


def factors_of(scorer: QueryScorer, table: DocidTable) -> DocidFactors:
    """The factors of a table's docids under the composed score, by the scorer's own phrase rows."""
    head = scorer.head
    if isinstance(head, ArrayHead):
        head = HeadRows.build(head.rows, format="float32")
    if not isinstance(head, HeadRows):
        raise ValueError("the factors of docids need phrase rows of the native core")
    return DocidFactors.build(head, table.snapshot().table, scorer.slots)


@dataclass
class Ranker:
    """Ranks documents for prepared queries: the docid table, the scorer, and the sources that are fused."""

    table: DocidTable
    scorer: QueryScorer
    ngrams: Ngrams
    shortlist: Shortlist | None = None
    lexical: LexicalIndex | None = None
    vectors: DocidVectors | None = None
    text: DocidVectors | None = None
    fusion: Fusion | None = None
    depth: int = 200
    expansion: int = 200
    threads: int = 2
    nearest: bool = True  # the documents with the nearest vectors are candidates; else vectors only re-rank
    encode: Encode | None = None  # for docids that are added later, where dense vectors count
    speller: Speller | None = None
    origin: str = ""  # what the table was built of when the sources were; that of the table if not given
    factors: DocidFactors | None = None  # of docids under the composed score; made from the scorer's rows if not given
    made: InitVar[Decoder | None] = None  # for these slots, floors and factors; its first use reads the whole table

    def __post_init__(self, made: Decoder | None) -> None:
        slots, floor = self.scorer.slots, self.scorer.floors
        composed = self.scorer.rule.score == "composed"
        if not composed:
            self.factors = None
        elif self.factors is None:
            self.factors = factors_of(self.scorer, self.table)
        self.decoder = made or Decoder(self.table, slots=slots, floor=floor, factors=self.factors, warm_up=False)
        self.origin = self.origin or self.table.origin
        self._lock = threading.Lock()
        self._live: LiveSources | None = None
        self._ready: list[tuple[Difference, Live]] = []  # the latest two, never changed in place

    def drop_unweighted(self) -> None:
        """Leave out what the fusion gives no weight, as a search of the index does."""
        needed = needed_by(self.fusion)
        self.lexical = self.lexical if LEXICAL in needed else None
        self.vectors = self.vectors if DENSE in needed else None
        self.text = self.text if TEXT in needed else None

    def warm_up(self) -> None:
        """Do now what the first query would do: bound the score of every docid, and count those that changed."""
        self.decoder.warm_up()
        self.live(self.table.snapshot())

    def live(self, snapshot: Snapshot) -> Live:
        """What speaks for documents beside their docids, after the changes that led to a state of the docid table.

        Two states are kept: searches go on with the old one, without waiting, while the new one is made.
        """
        self.check_origin(snapshot)
        built, difference = (self.lexical, self.vectors, self.text), snapshot.difference
        if not snapshot.changed:
            return Live(Sources(*built), self.speller)
        for known, live in self._ready:
            if known is difference:
                return live
        with self._lock:
            made = next((live for known, live in self._ready if known == difference), None)
            if made is None:
                if self._live is None:
                    self._live = LiveSources(*built, self.ngrams.vocabulary, self.encode, self.speller)
                made = self._live.after(snapshot)
            others = [pair for pair in self._ready if pair[1] is not made]
            self._ready = [(difference, made), *others[:1]]
            return made

    def check_origin(self, snapshot: Snapshot) -> None:
        """Raise if a docid table was built of other documents than the sources were."""
        counting = any(source is not None for source in (self.lexical, self.vectors, self.text))
        if counting and snapshot.documents.origin.ids != self.origin:
            raise FileFormatError(
                f"{self.table.path or 'the docid table'} was built again with documents that the other files lack: "
                "fit again"
            )

    def current_speller(self) -> Speller | None:
        """What corrects queries, with the words of all docids that were added so far; None without a lexicon."""
        return None if self.speller is None else self.live(self.table.snapshot()).speller

    @cached_property
    def place_of(self) -> dict[str, int]:
        """The place of every document's id among all ids, for those who ask for most of them."""
        documents = self.table.snapshot().documents
        return dict(zip(documents.doc_ids(range(len(documents))), documents.rank.tolist(), strict=True))

    def with_scorer(self, scorer: QueryScorer) -> Ranker:
        """The same with another scorer; the decoder stays where it may."""
        mine, other = self.scorer.floors, scorer.floors
        same = mine is other or (mine is not None and other is not None and np.array_equal(mine, other))
        same = same and scorer.slots == self.scorer.slots and scorer.rule.score == self.scorer.rule.score
        kept = scorer.head is self.scorer.head or scorer.rule.score != "composed"
        factors = self.factors if kept else None
        return replace(self, scorer=scorer, factors=factors, made=self.decoder if same and kept else None)

    def without_shortlist(self) -> Ranker:
        """The same, scoring every token."""
        return replace(self, shortlist=None, made=self.decoder)

    def queries(self, texts: Sequence[str], x: Floats, pooled: Floats) -> list[PreparedQuery]:
        """Queries from normalised texts and what the model says of them."""
        rows = zip(texts, x, pooled, strict=True)
        return self.listed(
            [PreparedQuery(text, vectors, one, np.sort(self.ngrams.of(text)), None) for text, vectors, one in rows]
        )

    def listed(self, queries: Sequence[PreparedQuery]) -> list[PreparedQuery]:
        """The same queries with the tokens that the shortlist of this engine gives them."""
        if self.shortlist is None:
            return [query._replace(tokens=None) for query in queries]
        try:
            size = self.table.vocab_size
            return [query._replace(tokens=self.shortlist.tokens(query.x[0], query.own, size)) for query in queries]
        except (ValueError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise FileFormatError(f"the shortlist is damaged ({reason}): build the index again") from error

    def slot_scores(self, queries: Sequence[PreparedQuery]) -> Iterable[SlotScores]:
        """What decoding takes, query by query."""
        x = np.stack([query.x for query in queries]) if queries else np.zeros((0, 1, 1), np.float32)
        lists = None if self.shortlist is None else [query.tokens for query in queries if query.tokens is not None]
        return self.scorer.batch(x, [query.own for query in queries], lists)

    def decode(self, scores: SlotScores, k: int, options: SearchOptions = ANYTHING) -> list[DocumentHit]:
        """The k best documents by their docids alone, with the best docid of each."""
        return self._search(scores, options).best(k).hits

    def _search(self, scores: SlotScores, options: SearchOptions) -> DocumentSearch:
        rule = self.scorer.rule
        return self.decoder.search(
            scores,
            aggregate=rule.aggregate,
            order=self.scorer.order,
            length_norm=rule.length_power,
            allow=options.allow,
            forbid=options.forbid,
            where=options.where,
        )

    def beam(self, scores: SlotScores, options: SearchOptions) -> Decoded[DocidHit]:
        """The docids that a beam comes across, best first; the paper's way."""
        return self.decoder.beam(
            scores,
            options.beam,
            width=options.beam,
            order="slots" if self.scorer.order == "slots" else "any",
            length_norm=self.scorer.rule.length_power,
            allow=options.allow,
            forbid=options.forbid,
            where=options.where,
        )

    def _beamed(self, scores: SlotScores, k: int, options: SearchOptions) -> list[DocumentHit]:
        """The documents that the docids of a beam name, each by its best docid."""
        best_of: dict[str, DocumentHit] = {}
        for hit in self.beam(scores, options).hits:
            for doc_id in hit.documents:
                best_of.setdefault(doc_id, DocumentHit(doc_id, hit.score, hit.tokens))
        return list(best_of.values())[:k]

    def allowed(self, doc_ids: Iterable[str], options: SearchOptions) -> set[str]:
        """Those of some documents that may be found."""
        allowed = set(doc_ids) if options.allow is None else set(doc_ids) & set(options.allow)
        if options.forbid is None and options.where is None:
            return allowed
        snapshot = self.table.snapshot()
        bits = {doc_id: snapshot.allowed([doc_id], options.forbid, options.where) for doc_id in allowed}
        return {doc_id for doc_id, mask in bits.items() if mask is None or mask.any()}

    def expanded(self, query: PreparedQuery) -> Expanded | None:
        """What the model expects in a good document, if that is asked for."""
        weights = None if self.fusion is None else self.fusion.weights
        if self.lexical is None or not self.expansion or (weights is not None and EXPANSION not in weights):
            return None
        return Expanded(*self.scorer.expansion(query.x, self.expansion, query.tokens))

    def candidates(
        self,
        query: PreparedQuery,
        scores: SlotScores,
        depth: int,
        options: SearchOptions = ANYTHING,
        lap: Stopwatch | None = None,
        expanded: Callable[[PreparedQuery], Expanded | None] | None = None,
    ) -> Candidates:
        """The `depth` best documents of the decoder and of each source, all of them with the scores of every source.

        `expanded` is for an engine that has no phrase rows at hand: it tells what the model expects.
        """
        lap = lap or Stopwatch()
        search = self._search(scores, options)
        decoded = [search.best(depth)]
        snapshot, numbers = search.snapshot, decoded[0].documents
        lap("decode")
        sources, numbering = self.live(snapshot).sources, snapshot.numbering
        expected = (expanded or self.expanded)(query)
        whole, tops = sources.whole(query.text, query.pooled, expected, depth, nearest=self.nearest)
        leading = np.concatenate([np.zeros(0, np.int64), *(top.units for top in tops.values())])
        missing = np.setdiff1d(numbering.numbers(leading), numbers)
        lap("sources")
        if len(missing):
            decoded.append(search.among(missing))
            numbers = np.concatenate([numbers, decoded[1].documents])
        units = numbering.units(numbers)
        lap("decode")
        columns = {DOCIDS: np.concatenate([run.scores for run in decoded]).astype(np.float32)}
        columns |= sources.some(whole, query.pooled, units)
        order = np.argsort(snapshot.id_keys(numbers))  # equals go by id
        columns = {name: column[order] for name, column in columns.items()}
        lap("sources")
        return Candidates(numbers[order], columns, decoded, order, tops)

    def search(self, queries: Sequence[PreparedQuery], options: SearchOptions = ANYTHING) -> list[list[DocumentHit]]:
        """The best documents of each query, with the best docid of each."""
        if isinstance(self.scorer.head, HeadRows):  # the core scores without the interpreter: a thread does it all
            return self.spread(lambda query: self.ranked(query, self.scored(query), options), queries)
        pairs = zip(queries, self.slot_scores(queries), strict=True)
        return self.spread(lambda pair: self.ranked(pair[0], pair[1], options), pairs)

    def scored(self, query: PreparedQuery) -> SlotScores:
        """What decoding takes, for one query."""
        return self.scorer.one(query.x, query.own, query.tokens)

    def ranked(
        self, query: PreparedQuery, scores: SlotScores, options: SearchOptions = ANYTHING, lap: Stopwatch | None = None
    ) -> list[DocumentHit]:
        """The best documents of a query, by all that is fused."""
        lap, k = lap or Stopwatch(), options.k
        if self.fusion is None or options.beam:
            hits = self._beamed(scores, k, options) if options.beam else self.decode(scores, k, options)
            lap("decode")
            return hits
        found = self.candidates(query, scores, max(self.depth, k), options, lap)
        hits = found.hits(*self.fusion.best(found.columns, k))
        lap("fuse")
        return hits

    def spread(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Run work on some threads, in order."""
        if self.threads < 2 or (isinstance(items, Sequence) and len(items) < 2):
            return [work(item) for item in items]
        done: list[Any] = []
        rest = iter(items)
        with ThreadPoolExecutor(self.threads) as pool:  # which would take all items at once: their scores are large
            while some := list(islice(rest, _AT_ONCE * self.threads)):
                done += pool.map(work, some)
        return done
