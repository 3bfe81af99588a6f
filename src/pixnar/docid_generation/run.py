"""Generate docids for a corpus that has none: documents pass through the sources in parts, each kept when done."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from pixnar.base.errors import MissingPartError, PixnarError
from pixnar.base.normalize import normalize
from pixnar.base.progress import Progress
from pixnar.base.storage import atomic_write, check_writable, gzipped, write_json
from pixnar.base.workdir import Workdir, may_resume, read_note, work_path
from pixnar.corpus import Corpus, Document
from pixnar.corpus.reader import state_of, state_of_files
from pixnar.corpus.records import is_text, shown
from pixnar.docid_generation.doc2query import Doc2Query, RoundtripFilter
from pixnar.docid_generation.key_texts import WordStatistics, key_phrases, key_sentences, titles
from pixnar.docid_generation.options import MODEL, PHRASES, SENTENCES, TITLES, DocidOptions
from pixnar.docid_generation.query_files import QueryLookup, read_queries_of

_VERSION = 3  # of what the sources make of a text: work of another release does not go on
_PART = 2048  # documents
_BATCHES = 8  # of a model make a part


def make_docids(
    corpus: Corpus,
    target: str | os.PathLike[str],
    options: DocidOptions | None = None,
    *,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Part:
    """Write docids of a corpus to a .jsonl or .tsv file (or .gz); what came of it, without the lines.

    Interrupted, even by a kill, it goes on where it stopped when called again with the same arguments, and the file
    is the same to the byte. Until all is done there is no file, only the folder ``TARGET.work`` beside it.

    ``make_docids(open_corpus("folder"), "folder/docids.jsonl", DocidOptions(sources=("titles", "sentences")))``
    """
    path, options = Path(target), options or DocidOptions()
    if not path.name.removesuffix(".gz").endswith((".jsonl", ".tsv")):
        raise PixnarError(f"{path}: docids are written to a file that ends in .jsonl or .tsv, or that and .gz")
    _check_target(path, overwrite)
    check_writable(path)
    with Parts.claim(path, _settings(corpus, path, options), overwrite=overwrite) as parts:
        run = _DocidRun(corpus, path, options, parts, threads, progress)
        try:
            _check_target(path, overwrite)  # another run may have made it since
            return run.all()
        except PixnarError:
            run.close()
            parts.forget()
            raise


def _check_target(path: Path, overwrite: bool) -> None:
    if path.exists() and path.stat().st_size and not overwrite:
        raise PixnarError(f"{path} is there already: choose another output with -o, or give --overwrite to replace it")


class _DocidRun:
    def __init__(
        self, corpus: Corpus, target: Path, options: DocidOptions, parts: Parts, threads: int, progress: Progress | None
    ) -> None:
        self.parts = parts
        self.corpus, self.target, self.options, self.threads, self.progress = corpus, target, options, threads, progress
        self.size = _BATCHES * options.doc2query.batch if MODEL in options.sources else _PART
        self.line = _tsv_line if target.name.removesuffix(".gz").endswith(".tsv") else _json_line

    def all(self) -> Part:
        done: list[Part] = []
        documents = self.corpus.documents()
        while batch := list(islice(documents, self.size)):
            number = len(done)
            part = self.parts.read(number)
            if part is None:
                part = self._part(batch, number * self.size)
                self.parts.write(number, part)
            part.lines = []
            done.append(part)
            self._tell((number + 1) * self.size)
        summary = total(done)
        if not sum(summary.made.values()):
            why = self._why_none(summary)
            self.close()
            self.parts.forget(all_of_it=True)
            raise MissingPartError(f"{self.corpus.name}: no docid came of it; {why}")
        self.close()
        self.parts.finish(len(done))
        return summary

    def close(self) -> None:
        """Let go of the files of queries, if any were opened."""
        for lookup in self.__dict__.pop("_lookups", {}).values():
            lookup.close()

    def _part(self, batch: list[Document], first: int) -> Part:
        """The docids of some documents: each once for a document, in the order of the sources."""
        queries = self._written_queries(batch, first) if MODEL in self.options.sources else None
        part = Part(documents=len(batch))
        for i, document in enumerate(batch):
            seen: set[str] = set()
            for source in self.options.sources:
                texts = queries[i] if source == MODEL and queries else self._texts_from(source, document)
                for text in texts:
                    docid = " ".join(text.split())
                    key = normalize(docid)
                    if not key or key in seen:
                        continue
                    if not self._passes(source, docid, first + i):
                        part.dropped += 1
                        continue
                    seen.add(key)
                    part.made[source] = part.made.get(source, 0) + 1
                    part.lines.append(self.line(document.doc_id, docid))
            part.unnamed += not seen
        return part

    def _texts_from(self, source: str, document: Document) -> list[str]:
        options = self.options
        if source == TITLES:
            return titles(document, options.headings)
        if source == SENTENCES:
            return key_sentences(document.text, self.statistics, options.sentences)
        if source == PHRASES:
            return key_phrases(f"{document.title}\n{document.text}", self.statistics, options.phrases)
        return self._lookups[source].of(document.doc_id)

    def _written_queries(self, batch: list[Document], first: int) -> list[list[str]]:
        texts = [_text(document) for document in batch]
        return self._model.queries(texts, first, lambda done: self._tell(first + done))

    def _passes(self, source: str, query: str, document: int) -> bool:
        if not self.options.roundtrip or source in (TITLES, SENTENCES, PHRASES):
            return True
        return self._roundtrip_filter.finds(query, document, self.options.roundtrip)

    def _tell(self, done: int) -> None:
        if self.progress:
            self.progress("naming documents", min(done, self._documents), self._documents)

    @cached_property
    def statistics(self) -> WordStatistics:
        path = self.parts.folder / "words.pixnar"
        if not path.exists():
            WordStatistics.count(normalize(text) for text in self._texts()).save(path)
        return WordStatistics.load(path)

    @cached_property
    def _documents(self) -> int:
        """How many there are: counted once, by the way where words are counted."""
        if self.options.needs_statistics:
            return self.statistics.documents
        path = self.parts.folder / "documents.json"
        if not path.exists():
            count = sum(1 for _ in self.corpus.documents(self.progress))
            write_json(path, count)
        return int(json.loads(path.read_bytes()))

    @cached_property
    def _model(self) -> Doc2Query:
        return Doc2Query.load(self.options.doc2query, self.threads)

    @cached_property
    def _roundtrip_filter(self) -> RoundtripFilter:
        return RoundtripFilter.over(self._texts(), self.parts.folder / "bm25.pixnar")

    @cached_property
    def _lookups(self) -> dict[str, QueryLookup]:
        return {str(path): self._lookup(i, path) for i, path in enumerate(self.options.files)}

    def _lookup(self, i: int, path: Path) -> QueryLookup:
        lookup = self.parts.folder / f"queries-{i}.sqlite"
        if lookup.exists():
            return QueryLookup(lookup)
        skip, skipped = self.corpus.skip_bad_rows, self.corpus.skipped
        rows = read_queries_of(path, skip_bad_rows=skip, progress=self.progress, skipped=skipped)
        return QueryLookup.build(lookup, rows)

    def _texts(self) -> Iterator[str]:
        return map(_text, self.corpus.documents(self.progress))

    def _why_none(self, summary: Part) -> str:
        options = self.options
        if summary.dropped:
            return (
                f"of {summary.dropped:,} queries none finds its document among the {options.roundtrip} best: raise "
                "--keep-only-finding or leave it out, or look at what the queries say"
            )
        if options.files:
            return "the ids in the files are perhaps not those of its documents"
        if MODEL in options.sources and any(text.strip() for text in self._texts()):
            return f"the model {options.doc2query.model} wrote nothing for any text: try another, or another source"
        if any(text.strip() for text in self._texts()):
            sources = ", ".join(options.sources)
            return f"{sources} gave nothing for any document: name other sources, or ask for more of each"
        return "its documents have neither titles nor text; give it docids (docs/corpus.md)"


def _settings(corpus: Corpus, target: Path, options: DocidOptions) -> dict[str, Any]:
    """The settings that decide what is generated."""
    model = Path(options.doc2query.model or "?")
    return {
        "version": _VERSION,
        "corpus": state_of(corpus, but=[target, work_path(target)]),
        "options": asdict(options),
        "files": [state_of_files(path) for path in options.files],
        "model": state_of_files(model) if model.exists() else None,
    }


def _text(document: Document) -> str:
    return f"{document.title} {document.text}".strip()


def _json_line(doc_id: str, docid: str) -> bytes:
    row = {"_id": doc_id, "docid": docid}
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8; the escape keeps it
        return json.dumps(row).encode() + b"\n"


def _tsv_line(doc_id: str, docid: str) -> bytes:
    if set("\t\n\r") & set(doc_id) or doc_id != doc_id.strip() or not is_text(doc_id):
        raise PixnarError(f"the document id {shown(doc_id)} cannot stand in a .tsv: write a .jsonl, with -o")
    return f"{doc_id}\t{docid}\n".encode("utf-8", "replace")


_NOTE = "begun.json"
_PARTS = "*.docids"
_COUNTS = ("documents", "unnamed", "dropped", "made")  # of a part, beside its lines


@dataclass
class Part:
    """The docids of consecutive documents as lines of the output, and counts of them."""

    documents: int = 0
    unnamed: int = 0  # documents without a docid
    dropped: int = 0  # queries that did not find their document
    made: dict[str, int] = field(default_factory=dict)  # docids by source
    lines: list[bytes] = field(default_factory=list)


class Parts:
    """Parts by number. Each is one file, written whole, whose first line has the checksum of the rest."""

    def __init__(self, work: Workdir) -> None:
        self._work, self.folder = work, work.path

    @classmethod
    @contextlib.contextmanager
    def claim(cls, target: Path, settings: dict[str, Any], *, overwrite: bool = False) -> Iterator[Parts]:
        """Begin the work for a file, or resume what was begun with the same settings; no other process can."""
        work = Workdir(target, mark=_NOTE)
        with work.claim():
            note = work.path / _NOTE
            if note.exists() and not may_resume(work.path, read_note(note), settings, overwrite=overwrite):
                work.clear()
            if not note.exists():
                write_json(note, settings)
            yield cls(work)

    def write(self, number: int, part: Part) -> None:
        """Keep a part."""
        body = b"".join(part.lines)
        head = {name: getattr(part, name) for name in _COUNTS} | {"xxh3": _sum(body)}
        with atomic_write(self._path(number)) as file:
            file.write(json.dumps(head).encode() + b"\n" + body)

    def read(self, number: int) -> Part | None:
        """A part, or None if it is not there or damaged, and is to be made again."""
        try:
            with open(self._path(number), "rb") as file:
                head, body = json.loads(file.readline()), file.read()
            if head["xxh3"] != _sum(body):
                return None
            return Part(**{name: head[name] for name in _COUNTS}, lines=body.splitlines(keepends=True))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def finish(self, count: int) -> None:
        """Join the parts to the file they are for, whole or not at all, and remove the folder."""
        with self._work.output() as raw, gzipped(raw, self._work.target) as file:
            for number in range(count):
                part = self.read(number)
                if part is None:
                    raise PixnarError(f"{self._path(number)} was changed by somebody else: run the command again")
                file.writelines(part.lines)
        self._work.remove()

    def forget(self, *, all_of_it: bool = False) -> None:
        """Remove the folder if no part was done or, with `all_of_it`, in any case."""
        self._work.remove() if all_of_it else self._work.forget(_PARTS)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:07}.docids"


def total(parts: Iterable[Part]) -> Part:
    """The counts of several parts together, without their lines."""
    out = Part()
    for part in parts:
        out.documents += part.documents
        out.unnamed += part.unnamed
        out.dropped += part.dropped
        for source, count in part.made.items():
            out.made[source] = out.made.get(source, 0) + count
    return out


def _sum(body: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(body)
