"""Scale of a run: the sizes that a plan starts from, given by the user or counted in a corpus."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from pixnar.base.errors import CorpusError, PixnarError
from pixnar.base.normalize import normalize
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus
from pixnar.research.plan.constants import CANDIDATES, ENCODERS

SAMPLE = 500_000  # docids that the vocabulary of `count` is learned from: some seconds


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The sizes of a corpus; of tokens and slots those of a vocabulary learned from `sampled` docids."""

    documents: int
    document_bytes: float  # of a document's own text, on average
    docids: int = 0
    text_bytes: float = 0.0  # of a docid, on average
    vocab: int = 0
    tokens_per_docid: float = 0.0
    slots: int = 0
    sampled: int = 0

    def __str__(self) -> str:
        """The counts in one line."""
        text = f"{self.documents:,} documents with {self.document_bytes:,.0f} bytes of text each"
        if not self.docids:
            return f"{text}, and no docids"
        tokens = f"{self.vocab:,} tokens, {self.tokens_per_docid:.2f} per docid"
        sample = f" (from {self.sampled:,} of them)" if self.sampled < self.docids else ""
        return f"{text}; {self.docids:,} docids of {self.text_bytes:.0f} bytes; {tokens}{sample}"


def count(
    corpus: Corpus, size: int, *, sample: int = SAMPLE, threads: int = 0, progress: Progress | None = None
) -> Counts:
    """Count a corpus: documents, docids, their bytes, and the tokens of a vocabulary of at most `size`.

    The vocabulary is learned from all docids up to `sample`, and from a random sample of more; then the whole corpus
    is taken to fill `size`. A corpus without docids has counts of documents alone.

    >>> from pixnar.corpus import DocidRow, Document, open_corpus, write_corpus
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_corpus(folder, [Document("d1", "Tea", "Leaves.", {})], [DocidRow("d1", "a hot drink")], [], {})
    ...     print(count(open_corpus(folder), 1000))
    1 documents with 11 bytes of text each; 1 docids of 11 bytes; 514 tokens, 9.00 per docid
    """
    from pixnar.vocab import Vocabulary

    documents = own_text = 0
    for document in corpus.documents(progress):
        documents += 1
        own_text += len(document.title.encode()) + 1 + len(document.text.encode())
    if not documents:
        raise CorpusError(f"{corpus.name} has no documents: there is nothing to plan")
    chance, kept, docids, text = random.Random(0), list[str](), 0, 0
    for row in corpus.docids(progress) if corpus.has_docids() else ():
        name = normalize(row.docid)
        docids, text = docids + 1, text + len(name.encode())
        if len(kept) < sample:
            kept.append(name)
        elif (place := chance.randrange(docids)) < sample:
            kept[place] = name
    if not docids:
        return Counts(documents=documents, document_bytes=own_text / documents)
    vocabulary = Vocabulary.build(kept, size, threads=threads, progress=progress)
    lengths = vocabulary.encode_batch(kept, threads=threads).lengths
    return Counts(
        documents=documents,
        document_bytes=own_text / documents,
        docids=docids,
        text_bytes=text / docids,
        vocab=len(vocabulary) if len(kept) == docids else max(size, len(vocabulary)),
        tokens_per_docid=float(lengths.mean()),
        slots=int(min(32, np.percentile(lengths, 99, method="higher") + 1)),  # as a fit has them by itself
        sampled=len(kept),
    )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes of a run, and the machine for it; 0 means: the usual."""

    docids: int
    vocab: int
    width: int = 384
    documents: int = 0
    slots: int = 8
    tokens_per_docid: float = 4.0
    text_bytes: float = 35.0  # of a docid
    document_bytes: float = 0.0  # of a document's own text
    pieces: float = 14.0  # word pieces of an input
    batch: int = 128
    steps: int = 0
    epochs: float = 1.0
    softmax: str = "full"
    sample: int = 2048
    optimizer: str = "rows"
    ranking: bool = True  # the ranking loss on documents
    fine_tune: float = 0.0
    lists: int = 0
    list_tokens: int = 0
    gpus: int = 0
    processes: int = 1  # without GPUs
    cores: int = 1
    gpu_memory: float = 80e9
    gpu_flops: float = 300e12
    memory: float = 0.0  # of the machine; 0: not compared

    def __post_init__(self) -> None:
        """Refuse what no corpus can be."""
        least = {"docids": 1, "vocab": 1, "width": 1, "slots": 1, "batch": 1, "cores": 1, "processes": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise PixnarError(f"--{name} {getattr(self, name)}: give {low} or more")
        if self.softmax not in ("full", "sampled") or self.optimizer not in ("rows", "adam"):
            raise PixnarError("--softmax is full or sampled, --optimizer rows or adam")

    @property
    def shards(self) -> int:
        """Processes that share the rows."""
        return self.gpus or self.processes

    @property
    def n_documents(self) -> int:
        """Documents, five docids to each if nothing is said."""
        return self.documents or max(1, self.docids // 5)

    @property
    def text(self) -> float:
        """Bytes of the own text of all documents."""
        return self.n_documents * self.document_bytes

    @property
    def n_steps(self) -> int:
        """Steps of training: those asked for, or as many as `epochs` times through the pairs take."""
        pairs = min(self.docids, 20 * self.n_documents)
        return self.steps or max(1, int(self.epochs * pairs / self.batch))

    @property
    def rows(self) -> int:
        """Rows of the head in the largest shard; the end of a docid has one, too."""
        return -(-(self.vocab + 1) // self.shards)

    @property
    def candidates(self) -> float:
        """Distinct tokens of the docids that the ranking loss of a step looks at."""
        return min(self.vocab, CANDIDATES * self.batch * self.tokens_per_docid) if self.ranking else 0.0

    @property
    def shortlist(self) -> tuple[int, int]:
        """Lists, and tokens of each: as `pixnar.runtime.defaults` has them."""
        from pixnar.runtime import defaults

        m, r, _ = defaults(self.vocab, min(self.docids, 100_000))
        return self.lists or m, self.list_tokens or r

    @property
    def encoder(self) -> tuple[float, float, int]:
        """Parameters, those outside the word table, and layers of an encoder that is so wide."""
        known = ENCODERS.get(self.width)
        if known is not None:
            return known
        nearest = min(ENCODERS, key=lambda width: abs(width - self.width))
        whole, inner, layers = ENCODERS[nearest]
        return (
            (whole - inner) * self.width / nearest + inner * (self.width / nearest) ** 2,
            inner * (self.width / nearest) ** 2,
            layers,
        )
