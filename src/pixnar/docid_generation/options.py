"""Options of docid generation: the sources, how many docids of each, how a model writes queries, where docids go."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from pixnar.base.errors import PixnarError
from pixnar.corpus.folder import find_file
from pixnar.docid_generation.doc2query import Doc2QueryOptions
from pixnar.docid_generation.query_files import SUFFIXES, is_query_file

TITLES, SENTENCES, PHRASES, MODEL = "titles", "sentences", "phrases", "model"
DEFAULT = (TITLES, SENTENCES, PHRASES)


@dataclass(frozen=True, kw_only=True)
class DocidOptions:
    """Options of a run.

    `sources` are titles, sentences, phrases, model or a file's name, in the order in which their docids are written.
    """

    sources: tuple[str, ...] = DEFAULT
    headings: int = 10
    sentences: int = 8
    phrases: int = 5
    doc2query: Doc2QueryOptions = field(default_factory=Doc2QueryOptions)
    roundtrip: int = 0  # pseudo-queries must find their document among so many; 0: they need not

    def __post_init__(self) -> None:
        """Refuse what cannot be done, before any work."""
        if not self.sources:
            raise PixnarError(f"no source of docids is given: give --from {','.join(DEFAULT)}")
        for source in self.sources:
            if source in (*DEFAULT, MODEL):
                continue
            if not is_query_file(source):
                known = ", ".join((*DEFAULT, MODEL))
                raise PixnarError(
                    f"unknown source of docids {source!r}: give {known}, or a file that ends in {', '.join(SUFFIXES)}"
                )
            if not Path(source).is_file():
                raise PixnarError(f"no file {source}: give the path of a file with queries, or one of the sources")
        if len(set(self.sources)) < len(self.sources):
            raise PixnarError(f"a source of docids is given twice: {', '.join(self.sources)}; give each once")
        if (MODEL in self.sources) != bool(self.doc2query.model):
            raise PixnarError("--from model and --model NAME go together: give both, or neither")
        if self.roundtrip and not (self.files or MODEL in self.sources):
            raise PixnarError(
                "--keep-only-finding is about pseudo-queries: give --from model or a file of queries, too"
            )
        numbers = {name.name: getattr(self, name.name) for name in fields(self) if name.type == "int"}
        least = {
            "queries per document": self.doc2query.per_document,
            "batch": self.doc2query.batch,
            "top-k": self.doc2query.top_k,
        }
        for name, value in [*numbers.items(), *((name, value - 1) for name, value in least.items())]:
            if value < 0:
                raise PixnarError(f"{name} is too small: give a larger number")

    @property
    def files(self) -> list[Path]:
        """The sources that are files."""
        return [Path(source) for source in self.sources if source not in (*DEFAULT, MODEL)]

    @property
    def needs_statistics(self) -> bool:
        """Whether words are weighed against the corpus."""
        return SENTENCES in self.sources or PHRASES in self.sources


def target_of(corpus: str, output: Path | None) -> Path:
    """The file to write: the one given, docids.jsonl in the folder given, or the corpus' own.

    >>> target_of("irds:beir/scifact", Path("scifact.jsonl"))
    PosixPath('scifact.jsonl')
    """
    if output is not None:
        return output / "docids.jsonl" if output.is_dir() else output
    folder = Path(corpus)
    if find_file(folder, "corpus.jsonl"):
        return find_file(folder, "docids.jsonl") or folder / "docids.jsonl"
    if find_file(folder, "collection.tsv"):
        return find_file(folder, "docids.tsv") or folder / "docids.tsv"
    raise PixnarError(f"{corpus} has no place for a docids.jsonl: give -o FILE, then corpus convert --docids FILE")
