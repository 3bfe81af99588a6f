"""The index: the folder a user ships, opened for searching."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, overload

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import in_memory
from pixnar.base.workdir import staged
from pixnar.corpus.records import Document
from pixnar.index import manifest
from pixnar.index.files import DOCIDS, ENCODER, HEAD
from pixnar.index.opening import open_ranker
from pixnar.runtime import HeadRows, QueryEncoder, TextEncoder
from pixnar.scoring import ScoreRule
from pixnar.search import Generated, Hit
from pixnar.search.explain import explain
from pixnar.search.query import Head, QueryScorer
from pixnar.search.ranker import PreparedQuery, Ranker
from pixnar.search.searcher import Searcher
from pixnar.search.types import SearchKeywords, SearchOptions
from pixnar.table import DocidTable
from pixnar.vocab import normalize


class Index:
    """An index in memory. `Index.load(folder).search(text)` is all most users need.

    A query that equals a docid finds that docid's documents first, whatever the model thinks.
    """

    def __init__(
        self, folder: Path, content: dict[str, Any], ranker: Ranker, encoder: TextEncoder, rows: HeadRows
    ) -> None:
        self.folder, self.manifest = folder, content
        self.rows = rows  # the phrase rows as they are served
        self.searcher = Searcher(encoder, ranker, corrects=bool(content.get("spelling")), where=folder)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        threads: int = 2,
        shortlist: bool = True,
        sources: str = "all",
        device: str | None = None,
        warm_up: bool = False,
        mapped: bool = True,
    ) -> Index:
        """Open an index; without `shortlist` every token of the vocabulary is scored.

        `sources` says what ranks: "docids" alone, "lexical": also the lexical index, by the words of the query and by
        what the model expects, "all": also the vectors that the recipe fuses. The weights of each were chosen on dev.

        Files are mapped: they must be there in their sizes, damage inside shows when it is met or with `verify`. The
        first query reads the docid table, which takes seconds for millions of docids; with `warm_up` that is done here.
        If not `mapped`, all is read into memory: nothing that is done to the files later can harm it.

        Queries are encoded and scored on the CPU, without torch. With a `device` ("cuda" …) torch does both there.
        """
        with contextlib.nullcontext() if mapped else in_memory():
            return cls._load(Path(folder), threads, shortlist, sources, device, warm_up)

    @classmethod
    def _load(
        cls, where: Path, threads: int, shortlist: bool, sources: str, device: str | None, warm_up: bool
    ) -> Index:
        content = manifest.read_manifest(where)
        fusion = manifest.fusion_of(content, sources)
        table = DocidTable.open(where / DOCIDS)
        rows = HeadRows.load(where / HEAD, verify=False)
        if rows.count - 1 != table.vocab_size:
            raise FileFormatError(f"{where}: the model has {rows.count - 1} tokens, the docid table {table.vocab_size}")
        encoder: TextEncoder
        head: Head = rows
        if device is None:
            encoder = QueryEncoder.load(where / ENCODER, threads=threads, verify=False)
        else:
            from pixnar.index.on_device import encoder_on, rows_on

            encoder, head = encoder_on(device, where), rows_on(device, rows)
        rule = ScoreRule.from_dict(content["rule"])
        ranker = open_ranker(
            where,
            content | {"fusion": fusion},
            table,
            lambda priors, log_z: QueryScorer(head, log_z, priors, rule),
            rows,
            lambda texts: encoder.query_vectors(texts, 1)[1],
            threads=threads,
            shortlist=shortlist,
            warm_up=warm_up,
        )
        slots = ranker.scorer.slots
        if isinstance(encoder, QueryEncoder) and (encoder.width, encoder.slots) != (rows.dim, slots):
            raise FileFormatError(
                f"{where / ENCODER} gives {encoder.slots} slots of {encoder.width} numbers, the other files have "
                f"{slots} of {rows.dim}: copy or build the index again"
            )
        return cls(where, content, ranker, encoder, rows)

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        **opening: Any,
    ) -> Index:
        """Open an index from the Hugging Face Hub; it is downloaded once, and every byte compared with its checksum.

        It lies in the hub's cache, where it cannot be changed, or in `local_dir`, where it can; the same call later
        brings the hub's state back. `opening` takes the options of `load`.
        """
        from pixnar.index.hub import download

        folder = download(repo_id, revision=revision, token=token, cache_dir=cache_dir, local_dir=local_dir)
        return cls.load(folder, **opening)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Put the index on the Hugging Face Hub, as it is on disk, with a card; the address of the commit.

        The repository is made if need be. It is one commit: whoever loads it meanwhile gets the old index or this one.
        """
        from pixnar.index.hub import upload

        self.verify()
        return upload(self.folder, repo_id, private=private, token=token, commit_message=commit_message)

    def verify(self) -> int:
        """Check every checksum of the folder; how many files were read."""
        DocidTable.check(self.folder / DOCIDS)
        return manifest.verify(self.folder)

    @property
    def ranker(self) -> Ranker:
        """Everything a search needs beside the encoder."""
        return self.searcher.ranker

    @property
    def encoder(self) -> TextEncoder:
        """What reads queries."""
        return self.searcher.encoder

    @cached_property
    def table(self) -> DocidTable:
        """The docid table."""
        return self.ranker.table

    def __len__(self) -> int:
        """How many documents there are."""
        return self.table.documents

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}: {len(self):,} documents, {self.table.pairs:,} names)"

    def add(
        self,
        doc_id: str,
        names: str | Sequence[str],
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Let names (docids) find a document, new or known; on disk and searchable when this returns.

        ``index.add("Q78.0", ["glass bones"])``. A `title` or `metadata` replaces that of the document.
        """
        texts = [names] if isinstance(names, str) else list(names)
        document = None
        if title is not None or metadata is not None:
            known = self.table.described([doc_id])[0] or Document(doc_id, "", "", {})
            document = Document(
                doc_id,
                known.title if title is None else title,
                "",
                dict(known.metadata if metadata is None else metadata),
            )
        self.table.add(doc_id, texts, document)

    def remove(self, doc_id: str, names: str | Sequence[str] | None = None) -> None:
        """Remove a document, or only some of its names; what is not there need not be removed."""
        if names is None:
            self.table.remove(doc_id)
            return
        texts = [names] if isinstance(names, str) else list(names)
        self.table.change(remove_pairs=[(doc_id, self.table.encode(text)) for text in texts])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Copy the index, as it is on disk, to a folder that is not there yet."""
        target = Path(folder)
        if target.exists():
            raise PixnarError(f"{target} exists: give a new folder, or remove it first")
        if target.resolve().is_relative_to(self.folder.resolve()):
            raise PixnarError(f"{target} is inside the index: give a folder elsewhere")
        from pixnar.index.hub import shipped

        with staged(target) as draft:
            for name, content in shipped(self.folder, self.manifest).items():
                path = draft / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, bytes):
                    path.write_bytes(content)
                else:
                    shutil.copyfile(content, path)

    @overload
    def search(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, query: str, k: int = 10, **options: Unpack[SearchKeywords]
    ) -> list[Hit]: ...

    @overload
    def search(self, query: Sequence[str], k: int = 10, **options: Unpack[SearchKeywords]) -> list[list[Hit]]: ...

    def search(
        self, query: str | Sequence[str], k: int = 10, **options: Unpack[SearchKeywords]
    ) -> list[Hit] | list[list[Hit]]:
        """The k best documents, of each query where several are given.

        Options: `allow`, `forbid` (document ids) and `where` (`country = "de" and price < 10`) restrict what may be
        found; hits below `threshold` are left out. With `beam`, a beam of that width looks for docids as in the paper:
        not exact, and docids alone rank. `spelling` says whether words in neither the corpus nor the encoder's
        vocabulary are corrected; without it the index does what `fit` decided on dev.
        """
        if isinstance(query, str):
            return self.searcher.search([query], SearchOptions(k=k, titles=True, **options))[0]
        return self.searcher.search(query, SearchOptions(k=k, titles=True, **options))

    def search_batch(self, queries: Sequence[str], k: int = 10, **options: Unpack[SearchKeywords]) -> list[list[Hit]]:
        """The k best documents of each query, without their titles; for the options see `search`."""
        if isinstance(queries, str):
            raise TypeError("search_batch takes a list of queries; for one query use search")
        return self.searcher.search(queries, SearchOptions(k=k, **options))

    def queries(self, texts: Sequence[str], spelling: bool | None = None) -> list[PreparedQuery]:
        """Queries ready to be asked: normalised, corrected, encoded, with their shortlists."""
        return self.searcher.prepare(texts, spelling)

    def asked(self, query: str, spelling: bool | None = None) -> str:
        """The text that a search looks for: the query in its normal form, its spelling corrected if that is wanted.

        ``index.asked("Rome  hotles")`` is "rome hotels" if the corpus has the word.
        """
        return self.searcher.correct(normalize(query), spelling)

    def explain(self, query: str, k: int = 10, **options: Unpack[SearchKeywords]) -> dict[str, Any]:
        """How the answer comes about: clusters, shortlist, tokens of every slot, docids, sums, time per stage."""
        return explain(self.searcher, query, SearchOptions(k=k, **options))

    def generate(self, query: str, k: int = 10) -> list[Generated]:
        """The k docids that the model predicts for a query, best first, with their tokens."""
        prepared, ranker, vocabulary = self.queries([query])[0], self.ranker, self.table.vocabulary
        rule = ranker.scorer.rule
        found = ranker.decoder.docids(
            ranker.scored(prepared), k, order=ranker.scorer.order, length_norm=rule.length_power
        )
        texts = self.table.spellings([hit.tokens for hit in found.hits])
        return [
            Generated(text, hit.score, [vocabulary.token(v) for v in hit.tokens], hit.documents)
            for text, hit in zip(texts, found.hits, strict=True)
        ]


class BeamSearch:
    """A `Retriever` that decodes an index by a beam of some width, as the paper does."""

    def __init__(self, index: Index, width: int) -> None:
        self.index, self.width = index, width

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents that the beam comes across; there may be fewer."""
        return self.index.search(query, k, beam=self.width)

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries."""
        return self.index.search_batch(queries, k, beam=self.width)
