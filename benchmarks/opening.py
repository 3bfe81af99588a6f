"""Opening a large index: how long until it is there, and what it takes in memory.

A synthetic index is written to a folder: phrases of two generated words as tokens, docids of random tokens, words,
priors, int8 rows and a shortlist of the paper's size. The encoder is left out, unless that of another index is lent:
then it is `Index.load` that is measured. Every opening is a process of its own. "Cold" is the first after the files
were dropped from the page cache as far as one process may ask for that (`posix_fadvise`); "warm" is the best of those
after it.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pixnar import _native
from pixnar.base.strings import SortedStrings
from pixnar.cli.common import JsonFile, number, write_json
from pixnar.corpus import Document
from pixnar.documents.documents import write_documents
from pixnar.evaluation.latency import environment, resident_mb
from pixnar.fusion.fuse import DOCIDS as DOCID_SCORE
from pixnar.fusion.fuse import EXPANSION, LEXICAL, Fusion
from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.postings import Lengths, Postings
from pixnar.index import Index, manifest
from pixnar.index.files import DOCIDS, ENCODER, HEAD, LEXICAL_FILE, PRIORS, SHORTLIST, write_priors
from pixnar.index.opening import open_ranker
from pixnar.runtime import HeadRows
from pixnar.runtime.encoder_folder import read_note
from pixnar.runtime.shortlist import PAPER, Shortlist
from pixnar.scoring import Priors, ScoreRule
from pixnar.search.query import QueryScorer
from pixnar.search.ranker import Ranker
from pixnar.table import DocidTable
from pixnar.table.folder import TableFolder
from pixnar.table.generation import write_generation
from pixnar.vocab import Vocabulary

from .apart import apart
from .generate import _concatenate, _mix, _words

_WORDS = 60_000  # that phrases are made of
_BATCH = 1_000_000
_POSTINGS = 6  # of a token, on average
_LENGTHS = (1, 2, 3, 4, 5)  # tokens of a docid
_SLOTS = 6
_VOCABULARY_KEYS = ("kinds", "offsets", "bytes", "scores", "spacing_chars", "spacing_rule")
_QUERY = "bamor stapol in 1999, how to grishun"


def run(
    tokens: Annotated[int, number("Tokens of the synthetic index.")] = 5_000_000,
    docids: Annotated[int, number("Docids of the synthetic index.")] = 10_000_000,
    documents: Annotated[int, number("Documents they name.")] = 1_000_000,
    dimensions: Annotated[int, typer.Option(help="Numbers per row.", min=1)] = 384,
    lists: Annotated[int, typer.Option(help="Lists of the shortlist.", min=1)] = PAPER[0],
    list_length: Annotated[int, typer.Option(help="Tokens of a list.", min=1)] = PAPER[1],
    repeats: Annotated[int, typer.Option(help="Warm openings; the best counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Of the synthetic index.")] = 0,
    encoder_of: Annotated[Path | None, typer.Option(help="Lend the encoder of this index, to open all of one.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the synthetic index here and reuse it.")] = None,
    json_file: JsonFile = None,
) -> dict[str, Any]:
    """Opening a large index: how long it takes, cold and warm, and how much memory.

    [bold]pixnar bench opening --tokens 5e6 --docids 1e7[/bold]
    """
    console = Console()
    with tempfile.TemporaryDirectory() as scratch:
        lent = None if encoder_of is None else read_note(encoder_of / ENCODER)
        slots, dimensions = (_SLOTS, dimensions) if lent is None else (lent.slots, lent.width)
        sizes = (tokens, docids, documents, dimensions, lists, list_length, slots, seed)
        where = (folder or Path(scratch)) / f"opening-{'-'.join(map(str, sizes))}"
        if not (where / manifest.NAME).is_file():
            shutil.rmtree(where, ignore_errors=True)  # what an interrupted run left
            console.print(f"writing an index of {tokens:,} tokens and {docids:,} docids …")
            apart(write_index, where, *sizes)
        shutil.rmtree(where / ENCODER, ignore_errors=True)
        if encoder_of is not None:
            shutil.copytree(encoder_of / ENCODER, where / ENCODER)
        size = sum(path.stat().st_size for path in where.rglob("*") if path.is_file())
        _forget(where)
        cold = apart(_measure, where)
        warm = [apart(_measure, where) for _ in range(repeats)]
    results = {
        "environment": environment("numpy"),
        "settings": {
            "tokens": tokens,
            "docids": docids,
            "documents": documents,
            "dimensions": dimensions,
            "lists": [lists, list_length],
            "encoder": encoder_of is not None,
            "seed": seed,
            "repeats": repeats,
        },
        "bytes": size,
        "cold": cold,
        "warm": {name: min(one[name] for one in warm) for name in warm[0]},
    }
    write_json(json_file, results)
    console.print(as_table(results))
    return results


def as_table(results: dict[str, Any]) -> Table:
    """The figures for people."""
    table = Table("what", "cold", "warm")
    for name, cold in results["cold"].items():
        digits = 0 if name.endswith("mb") else 3
        table.add_row(name, f"{cold:,.{digits}f}", f"{results['warm'][name]:,.{digits}f}")
    return table


def write_index(
    where: Path,
    tokens: int,
    docids: int,
    documents: int,
    dimensions: int,
    lists: int,
    list_length: int,
    slots: int,
    seed: int,
) -> dict[str, float]:
    """An index without an encoder."""
    rng = np.random.default_rng(seed)
    where.mkdir(parents=True)
    vocabulary = phrase_vocabulary(tokens)
    _write_table(where / DOCIDS, vocabulary, docids, documents, rng)
    uses = rng.zipf(1.5, tokens) % 100_000
    write_priors(where / PRIORS, Priors.count(uses, [2, 3], slots), np.zeros(slots + 1, np.float32))
    HeadRows.build(_Noise(tokens + 1, dimensions), np.zeros(tokens + 1, np.float32)).save(where / HEAD)
    c = rng.standard_normal((lists, dimensions), np.float32)
    listed = rng.integers(0, tokens, (lists, min(list_length, tokens)), np.uint32)
    Shortlist(c, listed, min(PAPER[2], lists)).save(where / SHORTLIST)
    _lexical(vocabulary, documents, rng).save(where / LEXICAL_FILE)
    weights = {DOCID_SCORE: 1.0, LEXICAL: 1.0, EXPANSION: 1.0}
    content = {
        "origin": DocidTable.open(where / DOCIDS).origin,
        "rule": ScoreRule().to_dict(),
        "fusion": Fusion(weights).to_dict(),
        "depth": 200,
        "expansion": 200,
    }
    manifest.write_manifest(where, content)
    return {}


class _Noise:
    """Random rows, drawn as they are sliced."""

    def __init__(self, count: int, width: int) -> None:
        self.shape = (count, width)

    def __getitem__(self, piece: slice) -> NDArray[np.float32]:
        begin, end, _ = piece.indices(self.shape[0])
        return np.random.default_rng(begin).standard_normal((end - begin, self.shape[1]), np.float32)


def phrase_vocabulary(size: int) -> Vocabulary:
    """A vocabulary of `size` tokens, phrases of two words but for the fixed ones, without any mining.

    >>> len(phrase_vocabulary(5_000)), phrase_vocabulary(600).token(599).count(" ")
    (5000, 1)
    """
    fixed = Vocabulary.from_tokens([]).arrays
    text, lengths = _words()
    ends = np.cumsum(lengths[: 2 * _WORDS])
    known = dict.fromkeys(text[: ends[-1]].tobytes().decode().split(" ")[1:])  # syllables may meet twice
    words = [f" {word}".encode() for word in list(known)[:_WORDS]]
    sizes = np.array([len(word) for word in words], np.int64)
    count = size - len(fixed["kinds"])
    place = np.arange(count, dtype=np.int64)
    pairs = np.stack([place % _WORDS, (place // _WORDS + place * 7_919) % _WORDS], 1)
    made, made_sizes = _concatenate(np.frombuffer(b"".join(words), np.uint8), np.cumsum(sizes) - sizes, sizes, pairs)
    begins = np.cumsum(made_sizes) - made_sizes
    kept = np.ones(len(made), np.bool_)
    kept[begins] = False  # the blank before the first word
    arrays: dict[str, NDArray[Any]] = {
        "kinds": np.concatenate([fixed["kinds"], np.zeros(count, np.uint8)]),
        "offsets": np.concatenate(
            [fixed["offsets"], fixed["offsets"][-1] + np.cumsum(made_sizes - 1).astype(np.uint64)]
        ),
        "bytes": np.concatenate([fixed["bytes"], made[kept]]),
        "scores": np.concatenate(
            [fixed["scores"], (_mix(place.astype(np.uint64)) % np.uint64(1000)).astype(np.uint16)]
        ),
        "spacing_chars": fixed["spacing_chars"],
        "spacing_rule": fixed["spacing_rule"],
    }
    arrays |= _native.build_lookup(**{name: arrays[name] for name in _VOCABULARY_KEYS})
    arrays |= {"uses": np.zeros(size, np.uint64), "lengths": np.zeros(1, np.uint64)}
    return Vocabulary(arrays, {"size": size})


def opened(where: Path, *, warm_up: bool = False) -> Ranker:
    """What `Index.load` opens; the encoder only if there is one."""
    if (where / ENCODER).is_dir():
        return Index.load(where, warm_up=warm_up).ranker
    content = manifest.read_manifest(where)
    table = DocidTable.open(where / DOCIDS)
    rows = HeadRows.load(where / HEAD, verify=False)
    rule = ScoreRule.from_dict(content["rule"])

    def scorer(priors: Priors, log_z: NDArray[np.float32]) -> QueryScorer:
        return QueryScorer(rows, log_z, priors, rule)

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError("no docid was added, so there is nothing to encode")

    return open_ranker(where, content, table, scorer, rows, encode, warm_up=warm_up)


def _measure(where: Path) -> dict[str, float]:
    before = resident_mb()
    started = time.perf_counter()
    ranker = opened(where)
    loaded = time.perf_counter()
    resident = resident_mb()
    ranker.ngrams.of(_QUERY)
    encoded = time.perf_counter()
    ranker.warm_up()
    warmed = time.perf_counter()
    return {
        "open s": loaded - started,
        "first n-grams s": encoded - loaded,
        "warm_up s": warmed - encoded,
        "resident mb": resident - before,
        "after warm_up mb": resident_mb() - before,
        "peak mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }


def _forget(where: Path) -> None:
    """Ask for the files to leave the page cache."""
    os.sync()
    for path in where.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _doc_id(number: int) -> str:
    return f"d{number:09}"


def _write_table(path: Path, vocabulary: Vocabulary, docids: int, documents: int, rng: np.random.Generator) -> None:
    folder = TableFolder(path)
    with folder.building(overwrite=False) as generation:
        vocabulary.save(folder.new_file("vocabulary", generation))
        some: Iterator[Document] = (Document(_doc_id(n), "", "", {}) for n in range(documents))
        write_documents(folder.new_file("documents", generation), some)
        builder = _native.DocidBuilder(len(vocabulary))
        none = np.zeros(0, np.int64)
        for begin in range(0, docids, _BATCH):
            count = min(_BATCH, docids - begin)
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(rng.choice(_LENGTHS, count), out=offsets[1:])
            # Low ids are used most, as in a built vocabulary.
            ids = (rng.random(offsets[-1]) ** 3 * len(vocabulary)).astype(np.uint32)
            builder.add(ids, offsets, rng.integers(0, documents, count, np.uint32), b"", none)
        write_generation(
            folder,
            generation,
            builder,
            documents,
            index=True,
            spelled=False,
            vocabulary=folder.sealed("vocabulary", generation),
            meta={"corpus": "generated"},
            threads=0,
            progress=None,
        )


def _lexical(vocabulary: Vocabulary, documents: int, rng: np.random.Generator) -> LexicalIndex:
    table = SortedStrings.of(sorted(f"zz{n}" for n in range(1000)))
    lists = len(vocabulary) + len(table)
    lengths = np.minimum(rng.integers(0, 2 * _POSTINGS + 1, lists), documents)
    offsets = np.zeros(lists + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    first = rng.integers(0, documents - lengths + 1)  # a list is a run of documents
    units = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], lengths)
    weights = rng.random(offsets[-1], np.float32)
    postings = Postings(offsets, units.astype(np.uint32), weights, documents)
    shapes = np.full(len(vocabulary), 2, np.uint8)
    words = Lengths(rng.integers(1, 40, documents).astype(np.uint32), 20.0, 0.9, 0.4)
    return LexicalIndex(vocabulary, postings, table, shapes, words)
