"""Sources: what an index adds to docid scores, the precision of its vectors, and the lexicon of its spelling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, Document
from pixnar.corpus.queries import Perturbation
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import Queries
from pixnar.fusion.fuse import DENSE, LEXICAL, TEXT, Fusion, needed_by
from pixnar.fusion.lexical import Docids, LexicalIndex
from pixnar.fusion.vectors import DocidVectors, name_of
from pixnar.index.files import LEXICAL_FILE, LEXICON, TEXT_FILE, VECTORS
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from pixnar.pipeline.export import LOSS
from pixnar.recipe import Recipe
from pixnar.runtime import TextEncoder
from pixnar.runtime.encoder_folder import FP32, INT8
from pixnar.search.ranker import Ranker
from pixnar.search.spelling import Lexicon, Speller, whole_words
from pixnar.table import DocidTable
from pixnar.train.data import TrainingData, TrainingInputs
from pixnar.vocab import normalize

Ints = NDArray[np.int64]

_TEXT_WORDS, _TEXT_PIECES = 80, 128  # of a vector: the sentence encoders at hand were trained on 128 word pieces


@dataclass(frozen=True)
class SourceBuilder:
    """Builds what the recipe wants into the folder of an index; what is there already is opened.

    All of them count documents by their numbers in the docid table. Documents without docids cannot be found: they have
    nothing there, and statistics leave them out.
    """

    corpus: Corpus
    data: TrainingData
    table: DocidTable
    folder: Path
    recipe: Recipe
    progress: Progress | None
    features: FeatureCache
    echoes: bool = False  # the docids only repeat what the text says: counted as well, they would weigh its words anew

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """The numbers in the table of the documents that have docids."""
        return self.table.snapshot().numbers_of(self.data.doc_ids)

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return dict(zip(self.data.doc_ids, self._numbers.tolist(), strict=True))

    def _texts(self, *, docids: bool, text: bool) -> list[tuple[int, str]]:
        data = self.data
        out: list[tuple[int, str]] = []
        if docids:
            owners = self._numbers[data.pair_document].tolist()
            out += [(owner, data.docids[i]) for i, owner in zip(data.pair_docid, owners, strict=True)]
        if text:
            for document in self.corpus.documents(self.progress):
                if document.doc_id in self._number_of:
                    out.append((self._number_of[document.doc_id], f"{document.title} {document.text}"))
        return out

    def lexical(self) -> LexicalIndex | None:
        """The lexical index of docids and text; None where the recipe wants none."""
        data = self.data
        settings, path = self.recipe.lexical, self.folder / LEXICAL_FILE
        if not (settings.docids or settings.text):
            return None
        if not path.exists():
            echoes = self.echoes and settings.text
            texts = self._texts(docids=settings.docids and not echoes, text=settings.text)
            counted: Docids = "none" if not settings.docids else "added" if echoes else "all"
            size, some = self.table.documents, len(data.doc_ids)
            LexicalIndex.build(data.vocabulary, texts, size, docids=counted, n_counted=some).save(path)
        return LexicalIndex.load(path, data.vocabulary)

    def vectors(self) -> DocidVectors | None:
        """The encoder's own vectors of the docids."""
        data = self.data
        path = self.folder / VECTORS
        if not self.recipe.fuse.dense or data.vectors is None:
            return None
        if not path.exists():
            vectors = data.vectors[: len(data.docids)]
            names = map(name_of, data.tokens.rows())
            owners = self._numbers[data.pair_document]
            DocidVectors.build(vectors, data.pair_docid, owners, self.table.documents, names).save(path)
        return DocidVectors.load(path)

    def text(self) -> DocidVectors | None:
        """The encoder's own vectors of the first words of each document; None where documents have no text."""
        most, path = self.recipe.fuse.text_vectors, self.folder / TEXT_FILE
        if not most:
            return None
        if not path.exists():
            rows = [
                (self._number_of[document.doc_id], piece)
                for document in self.corpus.documents(self.progress)
                if document.doc_id in self._number_of
                for piece in pieces_of(document, most)
            ]
            if not rows:
                return None
            features = self.features.reading(_TEXT_PIECES)
            vectors = features.vectors([piece for _, piece in rows], self.progress, "encoding texts")
            owners = [owner for owner, _ in rows]
            DocidVectors.build(vectors, range(len(rows)), owners, self.table.documents).save(path)
        return DocidVectors.load(path)


def pieces_of(document: Document, most: int) -> list[str]:
    """The first words of a document's text in pieces, each behind the title; none where there is no text.

    >>> pieces_of(Document("d", "Tea", "A hot " + "drink " * 100, {}), 2)[1][:16]
    'tea drink drink '
    """
    words = normalize(document.text).split()
    title = normalize(document.title)
    starts = range(0, min(len(words), most * _TEXT_WORDS), _TEXT_WORDS)
    return [" ".join([title, *words[i : i + _TEXT_WORDS]]).strip() for i in starts]


def unused(fusions: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """The files of sources that no fusion of an index gives a weight."""
    needed = {name for fusion in fusions.values() if fusion for name in needed_by(Fusion.from_dict(fusion))}
    files = {LEXICAL: LEXICAL_FILE, DENSE: VECTORS, TEXT: TEXT_FILE}
    return [file for name, file in files.items() if name not in needed]


WORTH = 20_000  # texts from which on int8 saves more time than measuring it takes
_QUERIES, _NAMED, _OTHERS = 400, 2000, 2000  # of the sample: queries, docids of what they look for, other docids
_LEAST = 20  # queries of a sample that says anything


@dataclass(frozen=True)
class PrecisionSample:
    """Queries, docids, and which docid names which document; every query has the documents that it should find."""

    queries: list[str]
    docids: list[str]
    rows: Ints
    documents: Ints
    relevant: list[set[int]]
    kind: str  # of the queries, in words

    @classmethod
    def draw(cls, names: TrainingInputs, dev: Queries) -> PrecisionSample:
        """Dev queries; without any, docids in search of their siblings. The same corpus gives the same sample."""
        chance = np.random.default_rng(0)
        by_document = np.argsort(names.pair_document, kind="stable")
        bounds = np.searchsorted(names.pair_document[by_document], np.arange(len(names.doc_ids) + 1))
        docids = names.pair_docid[by_document]
        asked: set[int] = set()  # docids that are queries: a query is not to find itself
        if len(dev):
            some, number = dev.first(_QUERIES), {doc_id: i for i, doc_id in enumerate(names.doc_ids)}
            relevant = [{number[one] for one in found if one in number} for found in some.relevant]
            queries, kind = some.texts, "dev queries"
        else:
            several = np.flatnonzero(np.diff(bounds) > 1)
            wanted = np.sort(chance.permutation(several)[:_QUERIES])
            first = dict(zip((int(docids[bounds[d]]) for d in wanted), map(int, wanted), strict=True))
            asked, relevant = set(first), [{d} for d in first.values()]
            queries, kind = [names.docids[i] for i in first], "docids in search of their siblings"
        known = sorted({d for found in relevant for d in found})
        each = max(1, _NAMED // max(1, len(known)))
        kept = {int(i) for d in known for i in [i for i in docids[bounds[d] : bounds[d + 1]] if i not in asked][:each]}
        kept |= {int(i) for i in chance.permutation(len(names.docids))[:_OTHERS]} - asked
        chosen = np.array(sorted(kept), np.int64)
        pairs = np.isin(names.pair_docid, chosen)
        rows = np.searchsorted(chosen, names.pair_docid[pairs])
        units, documents = np.unique(names.pair_document[pairs], return_inverse=True)
        unit = {int(d): i for i, d in enumerate(units)}
        return cls(
            queries=list(queries),
            docids=[names.docids[int(i)] for i in chosen],
            rows=rows.astype(np.int64),
            documents=documents.astype(np.int64),
            relevant=[{unit[d] for d in found if d in unit} for found in relevant],
            kind=kind,
        )

    def mrr(self, features: FeatureCache) -> float:
        """MRR@10 of dense retrieval."""
        vectors = features.vectors([*self.docids, *self.queries], None)
        count = len(self.docids)
        index = DocidVectors.build(vectors[:count], self.rows, self.documents, int(self.documents.max()) + 1)
        found, _ = index.search(vectors[count:], 10)
        return mrr_at([row.tolist() for row in found], self.relevant, 10)


def choose_precision(
    encoder: Encoder,
    folder: Path,
    setting: str,
    names: TrainingInputs,
    dev: Queries,
    phrases: int,
    say: Callable[[str], None],
    threads: int = 0,
) -> dict[str, Any]:
    """The precision of a corpus' vectors, and the figures behind it, as facts for the report."""
    if encoder.device.type != "cpu":  # torch encodes there
        return {"precision": FP32}
    if setting != "auto":
        say(f"vectors: encoder in {setting}, as the recipe says")
        return {"precision": setting}
    texts = len(names.docids) + len(names.queries) + phrases
    if texts < WORTH:
        say(f"vectors: encoder in fp32; int8 is tried from {WORTH:,} texts on, here are {texts:,}")
        return {"precision": FP32}
    sample = PrecisionSample.draw(names, dev)
    if len(sample.queries) < _LEAST:
        say("vectors: encoder in fp32; too few queries and siblings to measure what int8 would cost")
        return {"precision": FP32}
    figures: dict[str, float] = {}
    try:
        for precision in (INT8, FP32):  # int8 first: where it cannot be made, fp32 need not be measured
            figures[precision] = sample.mrr(FeatureCache(encoder, folder, precision=precision, threads=threads))
    except PixnarError as error:
        say(f"vectors: encoder in fp32; int8 is not possible ({error})")
        return {"precision": FP32}
    chosen = INT8 if figures[INT8] >= (1 - LOSS) * figures[FP32] else FP32
    say(
        f"vectors: encoder in {chosen}; dense MRR@10 {figures[FP32]:.4f} in fp32 and {figures[INT8]:.4f} in int8, "
        f"{len(sample.queries)} {sample.kind} against {len(sample.docids):,} docids"
    )
    return {"precision": chosen, "mrr10": figures, "queries": len(sample.queries), "docids": len(sample.docids)}


_CORRECTION_LOSS = 0.005  # of dev MRR@10 without typos, relative: what correcting may cost
LEAST = (1, 2, 3, 5, 10, 20)  # how often a word must occur to be corrected to; the first that costs little enough
_MISSPELT = 400  # dev queries that are also asked with a typo


def write_lexicon(corpus: Corpus, pieces: Iterable[str], folder: Path, progress: Progress | None = None) -> Lexicon:
    """The words of a corpus and the whole words among a tokenizer's pieces, written once."""
    path = folder / LEXICON
    if not path.exists():
        Lexicon.of_corpus(corpus, whole_words(pieces), progress).save(path)
    return Lexicon.load(path)


def decide(
    setting: str,
    ranker: Ranker,
    encoder: TextEncoder,
    lexicon: Lexicon,
    dev: Queries,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measure on dev what correcting does to queries as they are and with a typo; facts, `on` among them.

    Rare words are the most doubtful corrections, so words that occur less than `least` times are left out until queries
    as they are lose 0.5 % of MRR@10 at most. Where no `least` is enough, "auto" means off, "on" every word.
    """
    facts: dict[str, Any] = {"on": True, "least": 1, "words": len(lexicon)}
    if not len(dev):
        say(f"spelling: on, {len(lexicon):,} words; without a dev split its effect was not measured")
        return facts
    misspelt = dev.first(_MISSPELT)
    typo = Perturbation(typos=1)
    texts = [typo.apply(text, one) for text, one in zip(misspelt.texts, misspelt.ids, strict=True)]
    asked = _Asked(ranker, encoder)

    def corrected(queries: Queries, given: Sequence[str], least: int) -> float:
        speller = Speller(lexicon, least=least)
        return asked.mrr([speller.correct(text) for text in given], queries)

    clean = {"without": asked.mrr(dev.texts, dev)}
    found: dict[int, float] = {}
    for least in LEAST:
        found[least] = corrected(dev, dev.texts, least)
        if found[least] >= (1 - _CORRECTION_LOSS) * clean["without"]:
            facts["least"] = least
            break
    else:
        facts["on"] = setting == "on"
    clean["with"] = found[facts["least"]]
    typos = {"without": asked.mrr(texts, misspelt), "with": corrected(misspelt, texts, facts["least"])}
    facts["dev_mrr10_in_sample"] = {"clean": clean, "one_typo": typos}
    say(
        f"spelling: {'on' if facts['on'] else 'off'}, {len(lexicon):,} words, corrected to those that occur "
        f"{facts['least']} times or more; dev MRR@10, in sample: "
        f"{clean['without']:.4f}, corrected {clean['with']:.4f}; "
        f"with one typo, {len(misspelt)} queries: {typos['without']:.4f}, corrected {typos['with']:.4f}"
    )
    return facts


class _Asked:
    """Whole searches, each text once."""

    def __init__(self, ranker: Ranker, encoder: TextEncoder) -> None:
        self._engine, self._encoder = ranker, encoder
        self._known: dict[str, list[str]] = {}

    def mrr(self, texts: Sequence[str], queries: Queries) -> float:
        """MRR@10 of queries asked by these texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            found = self._engine.search(self._engine.queries(new, *self._encoder.query_vectors(new)))
            self._known |= {text: [hit.doc_id for hit in hits] for text, hits in zip(new, found, strict=True)}
        return mrr_at([self._known[text] for text in texts], queries.relevant, 10)
