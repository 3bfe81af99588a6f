"""Scale of a run, given by the user or counted in a corpus; and the constants of a plan, each with its source.

Measured ones name the file under benchmarks/results they are read from (two cores of a shared Xeon, one thread unless
said). The rest follows from formats, or is an assumption about machines that are not at hand, and says so.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from pixnar.base.errors import CorpusError, PixnarError
from pixnar.base.normalize import normalize
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus

# The vocabulary: vocab-generated.json, 28.7 million docids (1.0 GB of text) to 5 million tokens.
VOCABULARY_CORE_SECONDS_PER_MB = 0.37
VOCABULARY_MEMORY_PER_TEXT_BYTE = 4.6
VOCABULARY_BYTES_PER_TOKEN = 142.0  # of the file; plan.json

# The docid table: decode-100m.json and decode.json for the arrays, plan.json for files; docs/LOG.md for 10 million.
TABLE_BYTES = 3.7  # per docid, beside the tokens themselves
INDEX_BYTES = 0.5  # per docid, beside one row number per token
LIST_BYTES = 10.0  # per token of the vocabulary: where its list begins, and its blocks
SPELLING_BYTES_PER_TEXT_BYTE = 0.56
DOCUMENT_BYTES = 34.0  # with some metadata; 19 without any
TABLE_CORE_SECONDS = 18.5e-6  # per docid: reading, encoding, sorting
TABLE_MEMORY_PER_DOCID = 55.0
TABLE_MEMORY = 0.7e9

# What a training run reads: plan.json. Python strings in the first process, a file that all others map, and in every
# process the pairs of an epoch.
READING_MEMORY_PER_DOCID = 544.0
READING_FILE_PER_DOCID = 90.2
PAIRS_MEMORY_PER_DOCID = 140.0  # while the next epoch is drawn; 86 the rest of the time
READING_CORE_SECONDS = 12.1e-6

# The lexical index over docids, and what each byte of the documents' own text adds to it: plan-text.json.
LEXICAL_BYTES = 85.4
LEXICAL_CORE_SECONDS = 8.3e-6
LEXICAL_MEMORY_PER_DOCID = 1180.0  # at the peak of building it
LEXICAL_BYTES_PER_TEXT_BYTE = 2.1
LEXICAL_CORE_SECONDS_PER_TEXT_BYTE = 1.9e-7
LEXICAL_MEMORY_PER_TEXT_BYTE = 33.0

# Arithmetic of one core: plan.json, in seconds of the processor.
CORE_FLOPS_HEAD = 1.03e11
CORE_FLOPS_ENCODER = 8.8e10
SAMPLED_SECONDS_PER_STEP = 0.006  # beside the products: merging, gathering
CANDIDATES = 6  # docids of a document that the ranking loss looks at
RANKING_GRADIENTS = 1.02  # of the size of the head's own, at the peak of a step with the full softmax
DRAW_SECONDS_PER_TOKEN = 3.7e-7  # of a sampled softmax, from millions of tokens
COPY_SECONDS_PER_CELL = 4.9e-10  # of the copy distribution: inputs x candidate tokens
HOST_BANDWIDTH = 1.5e10  # bytes a second that a core reads and writes (assumed)

# Listing the best tokens of the vectors c_i, beside the products: a throw-away script, 128 vectors of 384, lists of
# 3,000 out of 100,000 tokens in 0.34 s. Each piece of 65,536 tokens is merged into the list.
LIST_SECONDS_PER_MERGED = 2.5e-7
LIST_SECONDS_PER_SCORE = 2e-9
LIST_PIECE = 65_536

# Assumed of a GPU and of what lies between them; --gpu-tflops and --gpu-memory change the main ones.
GPU_SHARE = 0.35  # of its nominal speed that large products reach
GPU_BANDWIDTH = 1.5e12  # bytes a second, of its own memory
GPU_LINK = 5.0e10  # bytes a second, from one to all others
GPU_OTHER = 1.5e9  # bytes that torch, its kernels and nccl take
CHUNK_BYTES = 3 * 64e6  # logits of one piece of the vocabulary, thrice: model/logsumexp.py
CHUNK_BYTES_CPU = 3 * 8e6
PROCESS_BYTES = 0.42e9  # of a process with torch, gloo and what it was not asked for: distributed.json

# Formats: bytes that follow from the code.
FLOAT, HALF = 4, 2
ROW_STATE = 6  # row-wise Adam: a float and a 16-bit count per row
ADAM_STATE = 8  # plain Adam: two floats per number

# Encoders by width: all parameters, those outside the word table, layers. MiniLM-L6, and DeBERTa-v3-base.
ENCODER_NAMES = {384: "", 768: "microsoft/deberta-v3-base", 1024: "microsoft/deberta-v3-large"}  # 384: the default
ENCODERS = {384: (22.7e6, 10.6e6, 6), 768: (184e6, 86e6, 12), 1024: (434e6, 303e6, 24)}
ONNX_BYTES_PER_PARAMETER = 2.7  # 8-bit weights in blocks, word table in 32 bits: the demo's index


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
