"""Autoregressive retrieval: a decoder generates n-grams, titles, docids or ids, and these give documents (torch)."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.strings import SortedStrings
from pixnar.evaluation.baselines.autoregressive.backbone import QueryDecoder, Seq2Seq
from pixnar.evaluation.baselines.autoregressive.beam import BeamOptions, beam_search, sequence_log_p
from pixnar.evaluation.baselines.autoregressive.collection import AFTER, DOCID, TITLE, Tokens
from pixnar.evaluation.baselines.autoregressive.constraint import FreeConstraint
from pixnar.evaluation.baselines.autoregressive.gather import (
    MAX,
    GatheredDocuments,
    GatherOptions,
    Key,
    gather,
    seal_lm,
)
from pixnar.evaluation.baselines.autoregressive.ids import END, FIRST, PieceTokens
from pixnar.evaluation.baselines.autoregressive.pairs import BODY, QUERY, SPAN, TITLES, WHOLE
from pixnar.evaluation.baselines.autoregressive.substrings import Ints, Span, Substrings
from pixnar.evaluation.baselines.autoregressive.trie import Trie
from pixnar.evaluation.baselines.entries import DOCUMENTS, choose, read_ids, write_ids
from pixnar.evaluation.queries import Queries
from pixnar.search import Hit
from pixnar.vocab import normalize

SEAL_LM, SEAL_LM_FM, SEAL, MINDER, DSI = "seal-lm", "seal-lm-fm", "seal", "minder", "dsi"
NGRAM_ROWS = (SEAL_LM, SEAL_LM_FM, SEAL, MINDER)
"""Those that one model serves."""

LENGTHS = (3, 4, 5)
"""Of the n-grams of SEAL-LM; the dev split selects one."""
BOOSTS = (0.0, 2.0, 5.0, 10.0, 14.0)
"""Of the log-probabilities of whole docids in MINDER; the dev split selects one."""

MODEL, INDEX, IDS = "model", "ngrams.pixnar", "ids.pixnar"

_QUERY_WORDS = 3  # of a query's n-grams that are keys, at most
_BOOSTED = -1.0  # a boosted log-probability at most
_TITLE_STEPS = 15
_DEPTH = 10  # of MRR@10


@dataclass(frozen=True, kw_only=True)
class RowSettings:
    """What a row generates and how wide its beam is."""

    row: str
    beam: int = 15
    length: int = LENGTHS[0]  # of the n-grams of SEAL-LM
    boost: float = 0.0  # of whole docids in MINDER

    def check(self) -> None:
        """Raise where a setting is not possible."""
        if self.row not in (*NGRAM_ROWS, DSI):
            raise PixnarError(f"row {self.row!r} is not possible: give {', '.join((*NGRAM_ROWS, DSI))}")
        if self.beam < 1 or not 1 <= self.length <= SPAN:
            raise PixnarError(
                f"beam {self.beam}, length {self.length} is not possible: give 1 or more, and a length up to {SPAN}"
            )

    def options(self) -> list[RowSettings]:
        """Those that the dev split selects from."""
        if self.row == SEAL_LM:
            return [replace(self, length=length) for length in LENGTHS]
        if self.row == MINDER:
            return [replace(self, boost=boost) for boost in BOOSTS]
        return [self]

    def gathering(self) -> GatherOptions:
        """How keys become scores."""
        if self.row == SEAL_LM:
            return seal_lm(self.length)
        return GatherOptions(rule=MAX) if self.row == SEAL_LM_FM else GatherOptions()

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `RowSettings(**content)` is the other way."""
        return asdict(self)


class AutoregressiveRetriever(ABC):
    """Documents by what a decoder generates from the query; those that nothing leads to are not found."""

    def __init__(
        self, model: Seq2Seq, doc_ids: Sequence[str] | SortedStrings, settings: RowSettings, *, threads: int = 1
    ) -> None:
        settings.check()
        self.model, self.doc_ids, self.settings, self.threads = model.eval(), doc_ids, settings, threads

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents, or as many as are found; nothing for an empty query."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries, one after the other."""
        if isinstance(queries, str):
            raise TypeError("search_batch takes a list of queries; for one query use search")
        texts = [normalize(query) for query in queries]
        with _threads(self.threads):
            return [self._hits(text, k) if text and k >= 1 else [] for text in texts]

    def choose(self, dev: Queries) -> dict[str, float]:
        """Take the settings that are best on dev, the first option without dev queries; figures of the choice."""
        options = self.settings.options()
        self.settings = options[0]
        if not len(dev):
            return {}
        with _threads(self.threads):
            ranks = np.array([self._ranks(*pair, options) for pair in zip(dev.texts, dev.relevant, strict=True)]).T
        best, figures = choose(ranks)
        self.settings = options[best]
        if len(options) == 1:
            figures.pop("MRR@10 cross-validated", None)  # nothing was chosen
        return figures

    def save(self, folder: Path) -> None:
        """Write model and documents into a folder."""
        self.model.save_pretrained(folder / MODEL)
        write_ids(folder / DOCUMENTS, self.doc_ids)

    @abstractmethod
    def _hits(self, text: str, k: int) -> list[Hit]:
        """The k best documents of a normalised query."""

    @abstractmethod
    def _ranks(self, text: str, relevant: set[str], options: list[RowSettings]) -> list[float]:
        """The reciprocal rank under each of some options."""


class GeneratedKeys(NamedTuple):
    """What a decoder generated from a query: keys by their view, and log-probabilities of single tokens."""

    body: list[Key]
    title: list[Key]
    query: list[Key]
    unigrams: NDArray[np.floating]


class NgramRetriever(AutoregressiveRetriever):
    """SEAL-LM, SEAL-LM+FM, SEAL and MINDER: keys that occur in the documents, by a beam over an index of substrings."""

    def __init__(
        self,
        model: Seq2Seq,
        doc_ids: Sequence[str] | SortedStrings,
        index: Substrings,
        settings: RowSettings,
        *,
        threads: int = 1,
    ) -> None:
        super().__init__(model, doc_ids, settings, threads=threads)
        if not isinstance(model.tokens, PieceTokens) or len(index) != len(doc_ids):
            raise FileFormatError("model, index and documents do not fit together: copy or build the baseline again")
        self.index, self.pieces = index, model.tokens
        self._plain = PlainSubstrings(index, self.pieces.first)

    def generate(self, text: str, steps: int = SPAN) -> GeneratedKeys:
        """The keys of a normalised query: n-grams up to `steps` tokens, and what else the row generates."""
        several = self.settings.row in (SEAL, MINDER)
        views = [BODY, *([TITLES] if several else []), *([QUERY] if self.settings.row == MINDER else [])]
        body, *rest = self.model.decoders(text, views)
        kept = beam_search(body, self._plain, BeamOptions(width=self.settings.beam, steps=steps, memory=True))
        keys = [Key(one.tokens, one.log_p) for one in kept]
        if several:
            keys += self._query_keys(text, body)
        title = self._whole(rest[0], TITLE, _TITLE_STEPS) if rest else []
        query = self._whole(rest[1], DOCID, WHOLE) if len(rest) > 1 else []
        log_p, _ = body.step(body.start(), np.array([body.begin]))
        return GeneratedKeys(keys, title, query, log_p[0])

    def scored(self, generated: GeneratedKeys, settings: RowSettings) -> tuple[list[Key], GatheredDocuments]:
        """All keys, and the scores of documents by them."""
        boosted = [Key(key.tokens, boost(key.log_p, settings.boost)) for key in generated.query]
        keys = [*generated.body, *generated.title, *boosted]
        options = replace(settings.gathering(), excluded=tuple(range(self.pieces.first)))
        return keys, gather(self.index, keys, options, generated.unigrams)

    def save(self, folder: Path) -> None:
        """Write model, documents and index into a folder."""
        super().save(folder)
        self.index.save(folder / INDEX)

    def _hits(self, text: str, k: int) -> list[Hit]:
        settings = self.settings
        keys, scored = self.scored(self.generate(text, settings.length if settings.row == SEAL_LM else SPAN), settings)
        first: dict[int, int] = {}  # keys come best first
        for document, key in zip(scored.pair_documents.tolist(), scored.pair_keys.tolist(), strict=True):
            first.setdefault(document, key)
        pairs = zip(scored.first(k).tolist(), scored.scores[:k].tolist(), strict=True)
        return [
            Hit(self.doc_ids[i], score, self.spelled(keys[first[i]].tokens) if i in first else "") for i, score in pairs
        ]

    def spelled(self, tokens: Tokens) -> str:
        """The text of a key, without markers."""
        return str(self.model.encoder.tokenizer.decode(self.pieces.decode(tokens)))

    def _ranks(self, text: str, relevant: set[str], options: list[RowSettings]) -> list[float]:
        generated = self.generate(text, max(LENGTHS) if self.settings.row == SEAL_LM else SPAN) if text else None
        if generated is None:
            return [0.0] * len(options)
        found = [self.scored(generated, settings)[1].first(_DEPTH).tolist() for settings in options]
        return [_reciprocal([self.doc_ids[i] for i in documents], relevant) for documents in found]

    def _whole(self, decoder: QueryDecoder, marker: int, steps: int) -> list[Key]:
        """Titles or docids between their markers."""
        options = BeamOptions(
            width=self.settings.beam,
            steps=steps,
            prefix=(self.pieces.marker(marker),),
            end=self.pieces.marker(AFTER),
        )
        return [Key(one.tokens, one.log_p) for one in beam_search(decoder, self.index, options)]

    def _query_keys(self, text: str, decoder: QueryDecoder) -> list[Key]:
        """The n-grams of the query's words that occur in the documents, scored as the decoder would generate them."""
        words = text.split()
        sizes = range(1, _QUERY_WORDS + 1)
        ngrams = [" ".join(words[i : i + size]) for size in sizes for i in range(len(words) - size + 1)]
        known = set(self.pieces.pieces.tolist())
        tokenised = self.model.encoder.tokenizer(ngrams, add_special_tokens=False)["input_ids"]
        found = {self.pieces.encode(pieces) for pieces in tokenised if pieces and known.issuperset(pieces)}
        keys = [tokens for tokens in sorted(found) if len(tokens) <= SPAN and self.index.count(tokens)]
        return [Key(*pair) for pair in zip(keys, sequence_log_p(decoder, keys).tolist(), strict=True)]


class PlainSubstrings:
    """The constraint of n-grams without markers."""

    def __init__(self, index: Substrings, first: int) -> None:
        self._index, self._first = index, first

    def root(self) -> Span:
        """The span of the empty n-gram."""
        return self._index.root()

    def allowed(self, state: Span) -> Ints:
        """The word pieces that follow somewhere."""
        tokens = self._index.allowed(state)
        return tokens[tokens.searchsorted(self._first) :]

    def child(self, state: Span, token: int) -> Span:
        """The span of a longer n-gram."""
        return self._index.child(state, token)


class IdRetriever(AutoregressiveRetriever):
    """DSI: ids of documents, generated freely of their tokens; those that do not exist are dropped."""

    def __init__(
        self,
        model: Seq2Seq,
        doc_ids: Sequence[str] | SortedStrings,
        ids: Trie,
        settings: RowSettings,
        *,
        threads: int = 1,
    ) -> None:
        super().__init__(model, doc_ids, settings, threads=threads)
        tokens = [END, *range(FIRST, len(model.embeddings))]
        self.ids, self._free = ids, FreeConstraint(tokens)

    def save(self, folder: Path) -> None:
        """Write model, documents and ids into a folder."""
        super().save(folder)
        self.ids.save(folder / IDS)

    def _hits(self, text: str, k: int) -> list[Hit]:
        options = BeamOptions(width=self.settings.beam, steps=self.model.most, end=END)
        found = beam_search(self.model.decoder(text), self._free, options)
        named = [(number, one.log_p) for one in found for number in self.ids.items(self.ids.find(one.tokens)).tolist()]
        return [Hit(self.doc_ids[number], log_p, "") for number, log_p in named[:k]]

    def _ranks(self, text: str, relevant: set[str], options: list[RowSettings]) -> list[float]:
        rank = _reciprocal([hit.id for hit in self._hits(text, _DEPTH)] if text else [], relevant)
        return [rank] * len(options)


def boost(log_p: float, by: float) -> float:
    """A boosted log-probability, at most -1 unless it was more.

    >>> boost(-20.0, 14.0), boost(-3.0, 14.0), boost(-0.5, 14.0)
    (-6.0, -1.0, -0.5)
    """
    return min(log_p + by, max(_BOOSTED, log_p))


def load_autoregressive(folder: Path, settings: dict[str, Any], *, threads: int = 1) -> AutoregressiveRetriever:
    """Open what `save` wrote."""
    chosen, model = RowSettings(**settings), Seq2Seq.from_pretrained(folder / MODEL)
    doc_ids = read_ids(folder / DOCUMENTS)
    if chosen.row == DSI:
        return IdRetriever(model, doc_ids, Trie.load(folder / IDS), chosen, threads=threads)
    return NgramRetriever(model, doc_ids, Substrings.load(folder / INDEX), chosen, threads=threads)


def _reciprocal(found: list[str], relevant: set[str]) -> float:
    return next((1 / rank for rank, doc_id in enumerate(found[:_DEPTH], 1) if doc_id in relevant), 0.0)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads of torch; the number is put back, as sums depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
