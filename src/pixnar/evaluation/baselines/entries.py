"""Entries of a baseline: docids or documents, their scores, the aggregation by document, and the choice on dev."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, MissingPartError, PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import SortedStrings, TextBlocks
from pixnar.corpus import Corpus
from pixnar.evaluation.queries import Queries
from pixnar.fusion.postings import best
from pixnar.search import Hit
from pixnar.vocab import normalize

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

DOCIDS, JOINED, TEXT, BOTH = "docids", "joined", "text", "both"
ENTRIES, DOCUMENTS = "entries.pixnar", "documents.pixnar"

_KIND, _IDS_KIND, _VERSION = "entries", "units", 1
_PER_DOCUMENT = 10  # entries that are looked at for each document wanted, before looking deeper
_DEEPER = 4


class ScoredEntries(NamedTuple):
    """Entries with their scores: all that score at least as much as the worst of them; `whole` if there are no more."""

    rows: Ints
    scores: Floats
    whole: bool


class Entries:
    """Entries by number. Entry i names `documents[offsets[i] : offsets[i + 1]]`, and has a spelling if it is a docid.

    >>> entries = Entries(["d1", "d2"], np.array([0, 1, 3]), np.array([0, 0, 1]), ["tea", "green tea"])
    >>> entries.ranked(np.array([0, 1]), np.array([1, 2], np.float32), 2)
    [Hit(id='d1', score=2.0, docid='green tea', title=''), Hit(id='d2', score=2.0, docid='green tea', title='')]
    """

    def __init__(
        self,
        doc_ids: Sequence[str] | SortedStrings,
        offsets: Ints,
        documents: Ints,
        spellings: Sequence[str] | None = None,
    ) -> None:
        self.doc_ids, self.offsets, self.documents, self.spellings = doc_ids, offsets, documents, spellings

    @classmethod
    def read(cls, corpus: Corpus, over: str, progress: Progress | None = None) -> tuple[Entries, list[str]]:
        """The entries of a corpus, and their normalised texts.

        `docids`: each distinct docid, in the order of the texts. `joined`: all docids of a document as one text;
        `text`: its title and text; `both`: these and its docids. Documents without any such text have no entry.
        """
        if over not in (DOCIDS, JOINED, TEXT, BOTH):
            raise PixnarError(f"over {over!r} is not possible: give {DOCIDS}, {JOINED}, {TEXT} or {BOTH}")
        if over == DOCIDS:
            return cls._of_docids(corpus, progress)
        parts: dict[str, list[str]] = {}
        if over in (TEXT, BOTH):
            for document in corpus.documents(progress):
                parts.setdefault(document.doc_id, []).append(normalize(f"{document.title} {document.text}"))
        if over in (JOINED, BOTH):
            for text, doc_id in sorted({(normalize(row.docid), row.doc_id) for row in corpus.docids(progress)}):
                parts.setdefault(doc_id, []).append(text)
        texts = {doc_id: text for doc_id, found in parts.items() if (text := " ".join(filter(None, found)))}
        if not texts:
            raise MissingPartError(f"{corpus.name} has nothing to index: its documents have no text; index docids")
        doc_ids = sorted(texts)
        numbers = np.arange(len(doc_ids) + 1)
        return cls(doc_ids, numbers, numbers[:-1]), [texts[doc_id] for doc_id in doc_ids]

    @classmethod
    def read_apart(cls, corpus: Corpus, over: str, progress: Progress | None = None) -> tuple[Entries, list[str]]:
        """The same with an entry for each docid and one for each text: `both` has those of `docids`, then of `text`."""
        if over not in (DOCIDS, TEXT, BOTH):
            raise PixnarError(f"over {over!r} is not possible for dense retrieval: give {DOCIDS}, {TEXT} or {BOTH}")
        if over != BOTH:
            return cls.read(corpus, over, progress)
        (docids, named), (whole, texts) = (cls.read(corpus, form, progress) for form in (DOCIDS, TEXT))
        assert docids.spellings is not None
        owners = [
            {docids.doc_ids[i] for i in docids.documents[begin:end].tolist()}
            for begin, end in pairwise(docids.offsets.tolist())
        ]
        spellings = [*docids.spellings, *("" for _ in texts)]
        joined = cls.of([*named, *texts], [*owners, *({doc_id} for doc_id in whole.doc_ids)], spellings)
        return joined, [*named, *texts]

    @classmethod
    def _of_docids(cls, corpus: Corpus, progress: Progress | None) -> tuple[Entries, list[str]]:
        spelled: dict[str, str] = {}
        named: dict[str, set[str]] = {}
        for row in corpus.docids(progress):
            if text := normalize(row.docid):
                spelled.setdefault(text, row.docid)
                named.setdefault(text, set()).add(row.doc_id)
        if not named:
            raise MissingPartError(f"{corpus.name} has no docids: give texts that name documents (docids.jsonl)")
        texts = sorted(named)
        return cls.of(texts, [named[text] for text in texts], [spelled[text] for text in texts]), texts

    @classmethod
    def of(cls, texts: Sequence[str], named: Sequence[set[str]], spellings: Sequence[str] | None = None) -> Entries:
        """From docids and the ids of the documents that each names."""
        doc_ids = sorted(set().union(*named))
        number = {doc_id: i for i, doc_id in enumerate(doc_ids)}
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(one) for one in named], out=offsets[1:])
        documents = np.array([number[doc_id] for one in named for doc_id in sorted(one)], np.int64)
        return cls(doc_ids, offsets, documents, texts if spellings is None else spellings)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def best(self, k: int, find: Callable[[int], ScoredEntries]) -> list[Hit]:
        """The k best documents; `find` gives the best entries, and is asked for more until k documents are known."""
        depth = self.depth(k)
        while True:
            found = find(depth)
            hits = self.ranked(found.rows, found.scores, k)
            if found.whole or len(hits) >= k:
                return hits
            depth *= _DEEPER

    def depth(self, k: int) -> int:
        """How many entries to look at first."""
        return k if self.spellings is None else _PER_DOCUMENT * k

    def ranked(self, rows: Ints, scores: Floats, k: int) -> list[Hit]:
        """The k best documents of some entries: each is as good as its best entry; equals come by their ids."""
        order = np.lexsort((rows, -scores))
        best: dict[int, tuple[float, int]] = {}
        last = -np.inf  # the score of the k-th document
        for row, score in zip(rows[order].tolist(), scores[order].tolist(), strict=True):
            if score < last:
                break
            for document in self.documents[self.offsets[row] : self.offsets[row + 1]].tolist():
                best.setdefault(document, (score, row))
            if len(best) >= k:
                last = score
        ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:k]
        return [Hit(self.doc_ids[document], score, self.spelling(row)) for document, (score, row) in ranked]

    def spelling(self, row: int) -> str:
        """The docid that an entry is; nothing if it is a text."""
        return "" if self.spellings is None else self.spellings[row]

    @cached_property
    def by_document(self) -> tuple[Ints, Ints]:
        """The entries of every document, one document after the other, and where those of each begin, and the end."""
        order = np.argsort(self.documents, kind="stable")
        rows = np.repeat(np.arange(len(self)), np.diff(self.offsets))[order]
        begins = np.searchsorted(self.documents[order], np.arange(len(self.doc_ids) + 1))
        return rows, begins.astype(np.int64)

    def save(self, folder: Path) -> None:
        """Write two files into a folder."""
        write_ids(folder / DOCUMENTS, self.doc_ids)
        arrays: dict[str, NDArray[Any]] = {"offsets": self.offsets, "documents": self.documents}
        if self.spellings is not None:
            arrays |= TextBlocks.pack(text.encode("utf-8", "surrogatepass") for text in self.spellings)
        meta = {"entries": len(self), "spelled": self.spellings is not None}
        write_container(folder / ENTRIES, _KIND, _VERSION, meta, arrays)

    @classmethod
    def load(cls, folder: Path) -> Entries:
        """Map what `save` wrote."""
        path = folder / ENTRIES
        found = read_container(path, _KIND, _VERSION)
        doc_ids = read_ids(folder / DOCUMENTS)
        try:
            offsets, documents = found.arrays["offsets"], found.arrays["documents"]
            spellings = _Spellings(found.arrays, path) if found.meta["spelled"] else None
            sound = len(offsets) == found.meta["entries"] + 1 and offsets[-1] == len(documents)
            sound = sound and (spellings is None or len(spellings) == len(offsets) - 1)
            sound = sound and (not len(documents) or 0 <= documents.min() <= documents.max() < len(doc_ids))
        except KeyError as error:
            raise FileFormatError(f"{path} does not say {error}: copy or build the baseline again") from error
        if not sound:
            raise FileFormatError(f"{path} does not fit {DOCUMENTS}: copy or build the baseline again")
        return cls(doc_ids, offsets, documents, spellings)


def readable(corpus: Corpus) -> str:
    """What a corpus has: docids, text, or both."""
    if not any(normalize(f"{document.title} {document.text}") for document in corpus.documents()):
        return DOCIDS
    try:
        return BOTH if any(normalize(row.docid) for row in corpus.docids()) else TEXT
    except MissingPartError:  # no such file
        return TEXT


def write_ids(path: Path, doc_ids: Iterable[str]) -> None:
    """Write sorted document ids."""
    ids = SortedStrings.of(doc_ids)
    write_container(path, _IDS_KIND, _VERSION, {"count": len(ids)}, {"bytes": ids.data, "offsets": ids.offsets})


def read_ids(path: Path) -> SortedStrings:
    """Map document ids, all of which are read to find damage."""
    arrays = read_container(path, _IDS_KIND, _VERSION).arrays
    try:
        return SortedStrings(arrays["bytes"], arrays["offsets"], where=str(path))
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"{path} holds no usable document ids ({error}): build the baseline again") from error


class _Spellings(Sequence[str]):
    """Texts that are unpacked when they are asked for."""

    def __init__(self, arrays: dict[str, NDArray[Any]], path: Path) -> None:
        self._blocks = TextBlocks(arrays, str(path))

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: Any) -> Any:
        return self._blocks[index].decode("utf-8", "surrogatepass")


MAX, MEAN, LOGSUMEXP = "max", "mean", "logsumexp"
AUTO = "auto"

_DIGITS = 6  # equal vectors get equal scores, wherever they stand in a product


@dataclass(frozen=True)
class Aggregate:
    """How scores of entries become the score of their document; `scale` is for log Σ exp(scale · s) / scale.

    >>> Aggregate("mean")(np.array([[1, 3, 5]], np.float32), np.array([0, 2])).tolist()
    [[2.0, 5.0]]
    """

    kind: str = MAX
    scale: float = 20.0

    def check(self) -> None:
        """Raise where it is not possible."""
        if self.kind not in (MAX, MEAN, LOGSUMEXP):
            raise PixnarError(f"aggregate {self.kind!r} is not possible: give {AUTO}, {MAX}, {LOGSUMEXP} or {MEAN}")
        if not 0 < self.scale < np.inf:
            raise PixnarError(f"scale {self.scale} is not possible: give a number above 0")

    def __call__(self, scores: Floats, starts: Ints) -> Floats:
        """[queries, documents] from [queries, entries], where those of each document begin at `starts`."""
        sizes = np.diff(starts, append=scores.shape[1])
        if self.kind == MEAN:
            found = (np.add.reduceat(scores, starts, axis=1) / sizes).astype(np.float32)
        else:
            found = np.maximum.reduceat(scores, starts, axis=1)
            if self.kind == LOGSUMEXP:
                scale = np.float32(self.scale)
                sums = np.add.reduceat(np.exp(scale * (scores - np.repeat(found, sizes, axis=1))), starts, axis=1)
                found = found + (np.log(sums) / scale).astype(np.float32)
        rounded: Floats = found.round(_DIGITS)
        return rounded

    def __str__(self) -> str:
        return f"log-sum-exp, scale {self.scale:g}" if self.kind == LOGSUMEXP else self.kind

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {"kind": self.kind, "scale": self.scale}

    @classmethod
    def from_dict(cls, data: Any) -> Aggregate:
        """The way back."""
        try:
            made = cls(str(data["kind"]), float(data["scale"]))
            made.check()
        except (KeyError, TypeError, ValueError, PixnarError) as error:
            raise FileFormatError(f"{data!r} is not an aggregate: copy or build the baseline again") from error
        return made


SCALES = (5.0, 10.0, 20.0, 40.0)


def options(kind: str = AUTO, scale: float = 0.0) -> list[Aggregate]:
    """What the dev split chooses from; without one the first is taken."""
    if scale and kind in (MAX, MEAN):
        raise PixnarError(f"scale is for {LOGSUMEXP}: leave it out with the aggregate {kind}")
    scales = (scale,) if scale else SCALES
    smooth = [Aggregate(LOGSUMEXP, one) for one in scales]
    if kind == LOGSUMEXP:
        return sorted(smooth, key=lambda one: one.scale != Aggregate.scale)  # the default first
    if kind != AUTO:
        Aggregate(kind).check()
        return [Aggregate(kind)]
    return [Aggregate(MAX), Aggregate(MEAN), *smooth]


class ScoredDocuments(Protocol):
    """Scores of documents for one query; documents are numbers of that side."""

    def best(self, depth: int) -> Ints:
        """The best so many documents, or fewer."""
        ...

    def of(self, documents: Ints) -> Floats:
        """The exact scores of some documents."""
        ...


@dataclass(frozen=True)
class AllScores:
    """Where the scores of all documents were computed anyway."""

    scores: Floats

    def best(self, depth: int) -> Ints:
        """The best so many documents; the lower number first among equals."""
        return best(self.scores, depth)

    def of(self, documents: Ints) -> Floats:
        """The scores of some documents."""
        return self.scores[documents]


DEV_QUERIES = 1000
"""Dev queries on which the settings of a baseline are chosen, at most."""

_K = 10
_FOLDS = 2


def reciprocal_rank(scores: NDArray[np.floating], relevant: NDArray[np.bool_]) -> float:
    """1 / rank of the first relevant document if it is among the first ten, else 0; equals rank in the given order.

    >>> reciprocal_rank(np.array([1.0, 3.0, 3.0]), np.array([True, False, True]))
    0.5
    """
    places = np.flatnonzero(relevant)
    if not len(places):
        return 0.0
    first = places[scores[places].argmax()]
    before = np.count_nonzero(scores > scores[first]) + np.count_nonzero(scores[:first] == scores[first])
    return float(1 / (1 + before)) if before < _K else 0.0


def relevant_numbers(dev: Queries, doc_ids: Iterable[str]) -> list[Ints]:
    """The relevant documents of every query, as their places among `doc_ids`."""
    number = {doc_id: i for i, doc_id in enumerate(doc_ids)}
    return [np.array(_known(wanted, number), np.int64) for wanted in dev.relevant]


def _known(wanted: Collection[str], number: dict[str, int]) -> list[int]:
    return sorted(number[doc_id] for doc_id in wanted if doc_id in number)


def choose(ranks: NDArray[np.float64], seed: int = 0) -> tuple[int, dict[str, float]]:
    """The best row of [options, queries] reciprocal ranks, the first among equals; and its figures.

    The cross-validated figure judges either half of the queries by what is best on the other half.

    >>> choose(np.array([[0.0, 0.5, 0.0, 0.5], [1.0, 1.0, 1.0, 0.5]]))
    (1, {'queries': 4, 'MRR@10': 0.875, 'MRR@10 cross-validated': 0.875})
    """
    best = int(ranks.mean(axis=1).argmax())
    figures: dict[str, float] = {"queries": ranks.shape[1], "MRR@10": float(ranks[best].mean())}
    if ranks.shape[1] >= _FOLDS:
        folds = np.array_split(np.random.default_rng(seed).permutation(ranks.shape[1]), _FOLDS)
        total = 0.0
        for fold in folds:
            others = np.setdiff1d(np.arange(ranks.shape[1]), fold)
            total += float(ranks[ranks[:, others].mean(axis=1).argmax()][fold].sum())
        figures["MRR@10 cross-validated"] = total / ranks.shape[1]
    return best, figures
