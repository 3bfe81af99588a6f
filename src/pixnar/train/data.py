"""Training data: inputs, the documents they name, docids as tokens; in memory, or mapped by several processes.

*Inputs* are the texts that may stand for a query: docids, train queries, passages of text, and docids with a typo.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.corpus import Corpus
from pixnar.corpus.queries import Perturbation
from pixnar.corpus.texts import cut_sentence, split_sentences
from pixnar.fusion.terms import Ngrams, TokenCounts
from pixnar.model.losses import PADDING
from pixnar.model.process_group import ProcessGroup
from pixnar.train.pairs import Pairs
from pixnar.vocab import TargetVocabulary, normalize
from pixnar.vocab.protocol import EncodedBatch

Ints = NDArray[np.int64]

_PASSAGE_WORDS = 30  # of a passage, at most; longer sentences are cut
_MISSPELT = 100_000  # docids with a typo, at most: each is one more text to encode
_COVERED = 0.5  # of the documents must have a passage of their own, or none is used


@dataclass(kw_only=True)
class TrainingInputs:
    """Inputs of training by one running number, distinct docids in sorted order, then queries; and what they name.

    Queries are the train queries, the passages of the documents' own text that train as if they were queries, and
    docids with a typo.
    """

    doc_ids: Sequence[str]  # of all documents that have docids, sorted
    docids: Sequence[str]  # normalised, distinct, sorted
    pair_docid: Ints  # which docid names …
    pair_document: Ints  # … which document; sorted by docid
    queries: Sequence[str]  # normalised train queries, passages and misspelt docids
    query_index: Ints  # which query …
    query_document: Ints  # … has which relevant document
    query_docid: Ints  # the docid that a query misspells; -1: none

    @property
    def inputs(self) -> list[str]:
        """All texts that may stand for a query."""
        return [*self.docids, *self.queries]

    def text(self, number: int) -> str:
        """The text of an input."""
        before = len(self.docids)
        return self.docids[number] if number < before else self.queries[number - before]

    def names(self) -> tuple[Ints, Ints]:
        """Which input, a docid or a query, names which document; sorted by input."""
        inputs = np.concatenate([self.pair_docid, len(self.docids) + self.query_index])
        return inputs, np.concatenate([self.pair_document, self.query_document])

    def paired_share(self) -> float:
        """The share of documents that have two texts or more: docids, train queries or passages."""
        inputs, documents = self.names()
        misspelt = (inputs >= len(self.docids)) & (self.own_docids(inputs) >= 0)
        texts = np.bincount(documents[~misspelt], minlength=len(self.doc_ids))
        return float((texts > 1).mean()) if len(texts) else 0.0

    def own_docids(self, inputs: Ints) -> Ints:
        """The docid that each input is, or misspells; -1: none."""
        before = len(self.docids)
        own: Ints = inputs.copy()
        asked = inputs >= before
        own[asked] = self.query_docid[inputs[asked] - before]
        return own

    def pairs(self, **options: Any) -> Pairs:
        """What training draws its pairs from."""
        return Pairs(
            len(self.docids), self.pair_docid, self.pair_document, self.query_index, self.query_document, **options
        )


@dataclass(kw_only=True)
class TrainingData(TrainingInputs):
    """Training inputs, and the docids as tokens of a vocabulary."""

    vocabulary: TargetVocabulary
    tokens: EncodedBatch  # of the docids
    vectors: NDArray[np.float16] | None = None  # of the inputs, where the encoder is frozen
    keep_ngrams: bool = True  # of all inputs, or count those of a batch when they are needed
    _ngrams: TokenCounts | None = field(default=None, repr=False)

    @classmethod
    def read(
        cls,
        corpus: Corpus,
        vocabulary: TargetVocabulary,
        progress: Progress | None = None,
        *,
        passages: int = 0,
        typos: float = 0.0,
    ) -> TrainingData:
        """Read a corpus as `read_inputs` does; dev and test queries are not looked at."""
        inputs = read_inputs(corpus, progress, passages=passages, typos=typos)
        if progress:
            progress("encoding docids", 0, len(inputs.docids))
        return cls(**vars(inputs), vocabulary=vocabulary, tokens=vocabulary.encode_batch(inputs.docids))

    @property
    def ngrams(self) -> TokenCounts:
        """The vocabulary's n-grams of every input; made when first asked for."""
        if self._ngrams is None:
            self._ngrams = Ngrams(self.vocabulary).count(self.inputs)
        return self._ngrams

    def ngrams_of(self, inputs: Ints) -> tuple[Ints, Ints]:
        """The n-grams of some inputs, one input after the other, and the position in `inputs` that each belongs to."""
        if self.keep_ngrams:
            places, owner = gathered(self.ngrams.offsets[inputs], np.diff(self.ngrams.offsets)[inputs])
            return self.ngrams.ids[places].astype(np.int64), owner
        found = Ngrams(self.vocabulary).count([self.text(int(i)) for i in inputs], threads=1)
        return found.ids.astype(np.int64), found.texts

    def default_slots(self) -> int:
        """The 99th percentile of docid lengths + 1, at most 32."""
        return default_slots(self.tokens.lengths)

    def token_counts(self) -> NDArray[np.int64]:
        """How often each token, and the end of a docid, stands in the docids."""
        counts = np.bincount(self.tokens.ids, minlength=len(self.vocabulary) + 1)
        counts[-1] = len(self.docids)
        return counts

    def targets(self, docids: Ints, slots: int) -> Tensor:
        """Tokens of docids [B, slots]: the docid, its end if there is a slot for it, then padding."""
        out = np.full((len(docids), slots), PADDING, np.int64)
        starts, lengths = self.tokens.offsets[docids], self.tokens.lengths[docids]
        for t in range(slots):
            here = lengths > t
            out[here, t] = self.tokens.ids[starts[here] + t]
            out[lengths == t, t] = len(self.vocabulary)
        return torch.from_numpy(out)

    def cut_tokens(self, slots: int) -> EncodedBatch:
        """The docids as search sees them: each one's first `slots` tokens."""
        if int(self.tokens.lengths.max(initial=0)) <= slots:
            return self.tokens
        ids, owner = self.rows(np.arange(len(self.docids)), slots)
        return EncodedBatch(ids.astype(np.uint32), np.searchsorted(owner, np.arange(len(self.docids) + 1)))

    def rows(self, docids: Ints, most: int) -> tuple[Ints, Ints]:
        """All tokens of some docids, each docid's first `most`, and the position in `docids` that each belongs to."""
        places, owner = gathered(self.tokens.offsets[docids], np.minimum(self.tokens.lengths[docids], most))
        return self.tokens.ids[places].astype(np.int64), owner


def read_inputs(
    corpus: Corpus, progress: Progress | None = None, *, passages: int = 0, typos: float = 0.0
) -> TrainingInputs:
    """Read docids and train queries of a corpus, and up to `passages` of each document's text.

    A share `typos` of the docids, 100,000 at most, are queries, too, each with one typo.
    Dev and test queries are not looked at.
    """
    rows = [(normalize(row.docid), row.doc_id) for row in corpus.docids(progress)]
    rows = [row for row in rows if row[0]]
    if not rows:
        raise CorpusError(f"{corpus.name} has no docids: training needs texts that name documents (docids.jsonl)")
    docids = sorted({text for text, _ in rows})
    doc_ids = sorted({doc_id for _, doc_id in rows})
    docid_number = {text: i for i, text in enumerate(docids)}
    doc_number = {doc_id: i for i, doc_id in enumerate(doc_ids)}
    pairs = np.unique(np.array([(docid_number[text], doc_number[doc]) for text, doc in rows], np.int64), axis=0)
    asked = _train_queries(corpus, doc_number)
    if passages:
        asked += _passages(corpus, doc_number, docid_number, passages, progress)
    misspelt = _misspelt(docids, docid_number, typos) if typos else {}
    asked += [(misspelt[i], document) for i, document in pairs.tolist() if i in misspelt]
    queries = sorted({text for text, _ in asked})
    number = {text: i for i, text in enumerate(queries)}
    relevant = np.array(sorted({(number[text], document) for text, document in asked}), np.int64).reshape(-1, 2)
    query_docid = np.full(len(queries), -1, np.int64)
    for i, text in misspelt.items():
        query_docid[number[text]] = i
    return TrainingInputs(
        doc_ids=doc_ids,
        docids=docids,
        pair_docid=pairs[:, 0].copy(),
        pair_document=pairs[:, 1].copy(),
        queries=queries,
        query_index=relevant[:, 0].copy(),
        query_document=relevant[:, 1].copy(),
        query_docid=query_docid,
    )


def _train_queries(corpus: Corpus, doc_number: dict[str, int]) -> list[tuple[str, int]]:
    """Train queries, each with a relevant document."""
    if "train" not in corpus.splits():
        return []
    relevant = [
        (q.query_id, doc_number[q.doc_id]) for q in corpus.qrels("train") if q.score > 0 and q.doc_id in doc_number
    ]
    wanted = {query_id for query_id, _ in relevant}
    texts = {query.query_id: normalize(query.text) for query in corpus.queries() if query.query_id in wanted}
    return [(texts[query_id], document) for query_id, document in relevant if texts.get(query_id)]


def _misspelt(docids: Sequence[str], known: Container[str], share: float) -> dict[int, str]:
    """Some docids, evenly over all of them, with one typo each; by the number of the docid."""
    count = min(round(share * len(docids)), _MISSPELT)
    one = Perturbation(typos=1)
    found: dict[int, str] = {}
    for i in sorted(set(np.linspace(0, len(docids) - 1, count).astype(int).tolist())):
        text = normalize(one.apply(docids[i], docids[i]))
        if text and text not in known:
            found[i] = text
    return found


def _passages(
    corpus: Corpus, doc_number: dict[str, int], docids: Container[str], most: int, progress: Progress | None
) -> list[tuple[str, int]]:
    """The title and the sentences of each document's text, cut to 30 words: those that stand in no other document.

    What many documents say tells none of them apart, and what is a docid already is an input as it is. Where less than
    half of the documents have a passage, the few there are say little of what documents are about: none is used.
    """
    owner: dict[str, int] = {}  # -1: several documents
    for document in corpus.documents(progress):
        number = doc_number.get(document.doc_id)
        if number is None:
            continue
        parts = [part for sentence in split_sentences(document.text) for part in cut_sentence(sentence, _PASSAGE_WORDS)]
        texts = dict.fromkeys(filter(None, map(normalize, [document.title, *parts])))
        for text in [text for text in texts if text not in docids][:most]:
            owner[text] = number if owner.get(text, number) == number else -1
    found = [(text, number) for text, number in owner.items() if number >= 0]
    covered = len({number for _, number in found})
    return found if covered >= _COVERED * len(doc_number) else []


def gathered(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """The places of runs that begin at `starts`, one run after the other, and which run each belongs to.

    >>> [array.tolist() for array in gathered(np.array([10, 3]), np.array([2, 1]))]
    [[10, 11, 3], [0, 0, 1]]
    """
    owner = np.repeat(np.arange(len(starts)), lengths)
    inside = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return starts[owner] + inside, owner


def default_slots(lengths: NDArray[np.int64]) -> int:
    """The 99th percentile of docid lengths + 1, at most 32."""
    return int(min(32, np.percentile(lengths, 99, method="higher") + 1))


_KIND, _VERSION = "inputs", 2
_TEXTS = ("doc_ids", "docids", "queries")
_ARRAYS = ("pair_docid", "pair_document", "query_index", "query_document", "query_docid")


class MappedTexts(Sequence[str]):
    """Texts in one array of bytes; each is made when it is asked for.

    >>> texts = MappedTexts(*packed(["one", "", "zwölf"]))
    >>> texts[2], texts[:2], len(texts)
    ('zwölf', ['one', ''], 3)
    """

    def __init__(self, content: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self._content, self._offsets = content, offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self._content[self._offsets[place] : self._offsets[place + 1]].tobytes().decode("utf-8", "surrogatepass")


def packed(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All bytes of some texts, and where each begins; at the end, where the last one ends."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def read_together(
    corpus: Corpus,
    vocabulary: TargetVocabulary,
    path: Path,
    group: ProcessGroup,
    progress: Progress | None = None,
    *,
    passages: int = 0,
    typos: float = 0.0,
) -> TrainingData:
    """`TrainingData.read` in the first process, which leaves a file that the others map.

    On one machine the file is in memory once, whatever the number of processes, and only what they touch of it.
    """
    if group.size == 1:
        return TrainingData.read(corpus, vocabulary, progress, passages=passages, typos=typos)
    if group.first:
        data = TrainingData.read(corpus, vocabulary, progress, passages=passages, typos=typos)
        write_inputs(data, path)
        group.wait()
    else:
        group.wait()
        data = _mapped(path, vocabulary)
    data.keep_ngrams = False
    return data


def write_inputs(data: TrainingData, path: Path) -> None:
    """The file that the other processes map."""
    arrays: dict[str, NDArray[Any]] = {name: getattr(data, name) for name in _ARRAYS}
    arrays |= {"tokens": data.tokens.ids, "token_offsets": data.tokens.offsets}
    for name in _TEXTS:
        arrays[name], arrays[f"{name}_offsets"] = packed(getattr(data, name))
    write_container(path, _KIND, _VERSION, {}, arrays)


def _mapped(path: Path, vocabulary: TargetVocabulary) -> TrainingData:
    found = read_container(path, _KIND, _VERSION, verify=False).arrays
    parts: dict[str, Any] = {name: MappedTexts(found[name], found[f"{name}_offsets"]) for name in _TEXTS}
    parts |= {name: found[name] for name in _ARRAYS}
    parts["tokens"] = EncodedBatch(found["tokens"], found["token_offsets"])
    return TrainingData(vocabulary=vocabulary, **parts)
