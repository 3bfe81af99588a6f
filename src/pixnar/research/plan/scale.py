"""How large it all is: what a user knows or guesses before a run."""

from __future__ import annotations

from dataclasses import dataclass

from pixnar.base.errors import PixnarError
from pixnar.research.plan.constants import CANDIDATES, ENCODERS


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
