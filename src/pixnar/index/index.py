"""The index: the folder a user ships, opened for searching."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import in_memory
from pixnar.documents import Filter
from pixnar.index import manifest
from pixnar.index.files import DOCIDS, ENCODER, HEAD, LEXICON
from pixnar.index.opening import open_engine
from pixnar.runtime import HeadRows, QueryEncoder, TextEncoder
from pixnar.scoring import ScoreRule
from pixnar.search import DocumentHit, Generated, Hit
from pixnar.search.explain import explain
from pixnar.search.query import Head, QueryScorer
from pixnar.search.searcher import EVERYTHING, Engine, Query, Wanted
from pixnar.search.spelling import Speller
from pixnar.search.stages import prepared
from pixnar.table import DocidTable
from pixnar.vocab import normalize


class Index:
    """An index in memory. `Index.load(folder).search(text)` is all most users need.

    A query that equals a docid finds that docid's documents first, whatever the model thinks.
    """

    def __init__(
        self, folder: Path, content: dict[str, Any], engine: Engine, encoder: TextEncoder, rows: HeadRows
    ) -> None:
        self.folder, self.manifest, self.engine, self.encoder = folder, content, engine, encoder
        self.rows = rows  # the phrase rows as they are served
        self.corrects = bool(content.get("spelling"))  # whether queries are corrected unless a search says otherwise
        self.speller: Callable[[], Speller | None] = engine.current_speller

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

        `sources` says what ranks: "docids" alone, "evidence": also what else the model's phrases say for a document,
        "all": also what the recipe fuses, dense vectors and BM25. The weights of each were chosen on dev.

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
        engine = open_engine(
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
        slots = engine.scorer.slots
        if isinstance(encoder, QueryEncoder) and (encoder.width, encoder.slots) != (rows.dim, slots):
            raise FileFormatError(
                f"{where / ENCODER} gives {encoder.slots} slots of {encoder.width} numbers, the other files have "
                f"{slots} of {rows.dim}: copy or build the index again"
            )
        return cls(where, content, engine, encoder, rows)

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

    @cached_property
    def table(self) -> DocidTable:
        """The docid table."""
        return self.engine.table

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        threshold: float | None = None,
        allow: Iterable[str] | None = None,
        forbid: Iterable[str] | None = None,
        where: str | Filter | None = None,
        beam: int = 0,
        spelling: bool | None = None,
    ) -> list[Hit]:
        """The k best documents; `allow`, `forbid` and `where` restrict what may be found.

        With `beam`, a beam of that width looks for docids as in the paper: not exact, and docids alone rank. `spelling`
        says whether words in neither the corpus nor the encoder's vocabulary are corrected; without it the index
        does what `fit` decided on dev.
        """
        wishes: dict[str, Any] = {"threshold": threshold, "allow": allow, "forbid": forbid, "where": where}
        return self.search_batch([query], k, **wishes, beam=beam, spelling=spelling)[0]

    def search_batch(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        threshold: float | None = None,
        allow: Iterable[str] | None = None,
        forbid: Iterable[str] | None = None,
        where: str | Filter | None = None,
        beam: int = 0,
        spelling: bool | None = None,
    ) -> list[list[Hit]]:
        """The k best documents of each query."""
        if isinstance(queries, str):
            raise TypeError("search_batch takes a list of queries; for one query use search")
        wanted = wanted_of(allow, forbid, where, beam)
        made = self.queries(queries, spelling)
        found = self.engine.search(made, k, wanted)
        return [self.hits(query, rows, k, wanted, threshold) for query, rows in zip(made, found, strict=True)]

    def queries(self, texts: Sequence[str], spelling: bool | None = None) -> list[Query]:
        """Queries ready to be asked: normalised, corrected, encoded, with their shortlists."""
        return prepared(self, texts, spelling)[0]

    def asked(self, query: str, spelling: bool | None = None) -> str:
        """The text that a search looks for: the query in its normal form, its spelling corrected if that is wanted.

        ``index.asked("Rome  hotles")`` is "rome hotels" if the corpus has the word.
        """
        text = normalize(query)
        self.check_spelling(spelling)
        speller = self.speller() if (self.corrects if spelling is None else spelling) else None
        return text if speller is None else speller.correct(text)

    def check_spelling(self, spelling: bool | None) -> None:
        """Raise if spelling is to be corrected and there is no lexicon."""
        if spelling and self.engine.speller is None:
            raise PixnarError(
                f"{self.folder} has no {LEXICON}, so spelling cannot be corrected: search without it, or fit again "
                "with serve.spelling=auto"
            )

    def explain(
        self,
        query: str,
        k: int = 10,
        *,
        threshold: float | None = None,
        allow: Iterable[str] | None = None,
        forbid: Iterable[str] | None = None,
        where: str | Filter | None = None,
        beam: int = 0,
        spelling: bool | None = None,
    ) -> dict[str, Any]:
        """How the answer comes about: clusters, shortlist, tokens of every slot, docids, sums, time per stage."""
        return explain(self, query, k, wanted_of(allow, forbid, where, beam), threshold, spelling)

    def generate(self, query: str, k: int = 10) -> list[Generated]:
        """The k docids that the model says of a query, best first, with the tokens it says them in."""
        made, engine, vocabulary = self.queries([query])[0], self.engine, self.table.vocabulary
        rule = engine.scorer.rule
        found = engine.decoder.docids(engine.scored(made), k, order=engine.scorer.order, length_norm=rule.length_power)
        return [
            Generated(self.spelling(hit.tokens), hit.score, [vocabulary.token(v) for v in hit.tokens], hit.documents)
            for hit in found.hits
        ]

    def hits(
        self,
        query: Query,
        rows: list[DocumentHit],
        k: int,
        wanted: Wanted,
        threshold: float | None,
    ) -> list[Hit]:
        """Ranked documents as hits: those that the query names first, those below the threshold left out."""
        rows = self._equal_first(query, rows, k, wanted)
        return [
            Hit(row.doc_id, row.score, self.spelling(row.tokens))
            for row in rows
            if threshold is None or row.score >= threshold
        ]

    def _equal_first(self, query: Query, rows: list[DocumentHit], k: int, wanted: Wanted) -> list[DocumentHit]:
        """Documents that the query names word by word come first."""
        named = self._allowed(self.equal(query), wanted)
        return equal_first(rows, named, self.table.encode(query.text), k) if named and k else rows

    def equal(self, query: Query) -> list[str]:
        """The documents that a query names word by word."""
        return self.table.named(self.table.encode(query.text)) if query.text else []

    def _allowed(self, doc_ids: Iterable[str], wanted: Wanted) -> set[str]:
        """Those that may be found."""
        if wanted[:3] == EVERYTHING[:3]:
            return set(doc_ids)
        some = set(doc_ids) if wanted.allow is None else set(doc_ids) & set(wanted.allow)
        snapshot = self.table.snapshot()
        bits = {doc_id: snapshot.allowed([doc_id], wanted.forbid, wanted.where) for doc_id in some}
        return {doc_id for doc_id, one in bits.items() if one is None or one.any()}

    def spelling(self, tokens: tuple[int, ...]) -> str:
        """A docid as it was written."""
        if not tokens:
            return ""
        return self.table.spelling(tokens) or self.table.vocabulary.decode(tokens)


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


def equal_first(rows: list[DocumentHit], named: set[str], tokens: tuple[int, ...], k: int) -> list[DocumentHit]:
    """Documents that the docid with these tokens names come first; those that were not found get the best score."""
    inside = [row.doc_id for row in rows if row.doc_id in named]
    top = rows[0].score if rows else 0.0
    first = [DocumentHit(doc_id, top, tokens) for doc_id in inside + sorted(named - set(inside))]
    return (first + [row for row in rows if row.doc_id not in named])[:k]


def wanted_of(
    allow: Iterable[str] | None, forbid: Iterable[str] | None, where: str | Filter | None, beam: int = 0
) -> Wanted:
    """What may be found, and how it is looked for."""
    for name, given in (("allow", allow), ("forbid", forbid)):
        if isinstance(given, str):
            raise TypeError(f"{name} is one text: give a list of document ids")
    if beam < 0:
        raise PixnarError(f"a beam of width {beam}: give 1 or more, or 0 for exact decoding")
    return Wanted(None if allow is None else list(allow), None if forbid is None else list(forbid), where, beam)
