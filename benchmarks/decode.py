"""Decoding on generated tables: exact and beam search, latency, recall of the beam, bytes per docid.

Behind ``pixnar bench decode``. Every method answers the same queries in one process on one thread, one method after the
other, several times over; a query's time is its best. It is the time of the native call, without the spelling out of
hits. Slow methods get fewer queries, and no 99th percentile below 50. Beside them a trie of Python dicts is walked with
the same scores, as constrained decoding in autoregressive systems does.
"""

from __future__ import annotations

import functools
import heapq
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pixnar import _native
from pixnar.base.storage import atomic_write, read_container, write_container
from pixnar.cli.common import JsonFile, numbers, write_json
from pixnar.evaluation.latency import environment
from pixnar.search import SlotScores
from pixnar.search.decoder import ENGINES
from pixnar.vocab import Vocabulary, load_vocabulary

from .apart import apart
from .decode_queries import PROFILES, QueryMaker
from .generate import generate_docids

VOCABULARY_DOCIDS = 3_000_000  # docids that the vocabulary is learned from
VOCABULARY_SIZE = 500_000
DOCIDS_PER_DOCUMENT = 5
_ORDERS = {"slots": 0, "any": 1}
_BATCH = 200_000
_FEWEST = 50  # queries that give a 99th percentile
_SWEPT_DOCIDS = 20_000_000  # the slower exact engines take seconds beyond that
_TRIE_DOCIDS = 1_000_000  # more do not fit in a trie of dicts

Ids = list[int]  # rows
Answer = Callable[[SlotScores, int], Ids]


class Method(NamedTuple):
    """A way to decode; what it finds is compared with the exact answer of the same mode."""

    name: str
    mode: str  # "strict", "floor" or "floor, any order"
    answer: Answer
    exact: bool


def run(
    docids: Annotated[Sequence[int], numbers("Sizes of the generated tables, separated by commas.")] = (10**6, 10**7),
    queries: Annotated[int, typer.Option(help="Queries of each kind.", min=1)] = 200,
    slots: Annotated[int, typer.Option(help="Slots of a query.", min=1, max=32)] = 8,
    candidates: Annotated[int, typer.Option(help="Tokens with a score in each slot.", min=1)] = 1000,
    k: Annotated[Sequence[int], numbers("Results wanted, separated by commas.", "-k", "--k")] = (10, 100),
    beams: Annotated[Sequence[int], numbers("Widths of the beam, separated by commas.")] = (10, 100),
    repeats: Annotated[int, typer.Option(help="Times every query is asked; its best time counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Chooses the queries.")] = 0,
    folder: Annotated[Path | None, typer.Option(help="Keep the generated tables here and reuse them.")] = None,
    json_file: JsonFile = None,
) -> dict[str, Any]:
    """Exact decoding and beams on generated tables: latency, recall, bytes per docid.

    [bold]pixnar bench decode --docids 1e6 --queries 50[/bold]
    """
    console = Console()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "environment": environment("numpy"),
        "settings": {"slots": slots, "candidates": candidates, "queries": queries, "repeats": repeats, "seed": seed},
        "tables": [],
        "cells": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        for size in docids:
            facts, table = _table(folder or Path(scratch), size, console)
            results["tables"].append(facts)
            console.print(
                f"{facts['docids']:,} docids, {facts['mean_tokens']:.2f} tokens each: "
                f"{facts['bytes_table']:.1f} bytes a docid, {facts['bytes_indexed']:.1f} with the index; "
                f"built in {facts['build_s']:.0f} s with {facts['peak_gb']:.1f} GB, opened in {facts['open_ms']:.1f} ms"
            )
            maker = QueryMaker(table, slots=slots, candidates=candidates, seed=seed)
            methods = list(_methods(table, maker, slots, beams, size))
            for profile in PROFILES:
                given = [maker.query(profile) for _ in range(queries)]
                for wanted in k:
                    results["cells"] += _measure(methods, given, wanted, repeats, size=size, profile=profile)
                    write_json(json_file, results)
    console.width = max(console.width, 110)
    console.print(as_table(results))
    return results


def as_table(results: dict[str, Any]) -> Table:
    """The figures for people."""
    table = Table("docids", "scores", "mode", "method", "k", "p50 ms", "p99 ms", "recall", "of")
    for cell in results["cells"]:
        table.add_row(
            f"{cell['docids']:,}",
            cell["profile"],
            cell["mode"],
            cell["method"],
            str(cell["k"]),
            f"{cell['p50_ms']:.2f}",
            "–" if cell["p99_ms"] is None else f"{cell['p99_ms']:.2f}",
            f"{cell['recall']:.3f}",
            f"{cell['queries']} queries",
        )
    return table


def _measure(
    methods: Sequence[Method], queries: Sequence[SlotScores], k: int, repeats: int, *, size: int, profile: str
) -> Iterator[dict[str, Any]]:
    truth: dict[str, list[Ids]] = {}
    for method in methods:
        # What is slow is measured on fewer queries, so that the whole stays bearable.
        started = time.perf_counter()
        method.answer(queries[0], k)
        seconds = time.perf_counter() - started
        asked = queries[: int(max(5, min(len(queries), 6 / max(seconds, 1e-9) / repeats)))]
        best = np.full(len(asked), np.inf)
        found: list[Ids] = []
        for turn in range(repeats):
            for i, query in enumerate(asked):
                started = time.perf_counter()
                answer = method.answer(query, k)
                best[i] = min(best[i], time.perf_counter() - started)
                if turn == 0:
                    found.append(answer)
        if method.exact and method.mode not in truth:
            truth[method.mode] = found
        pairs = list(zip(found, truth[method.mode], strict=False))
        right = sum(len(set(ours) & set(theirs)) for ours, theirs in pairs)
        yield {
            "docids": size,
            "profile": profile,
            "mode": method.mode,
            "method": method.name,
            "k": k,
            "queries": len(asked),
            "p50_ms": float(np.percentile(best, 50) * 1e3),
            "p99_ms": float(np.percentile(best, 99) * 1e3) if len(asked) >= _FEWEST else None,
            "recall": right / max(1, sum(len(theirs) for _, theirs in pairs)),
        }


def _methods(
    table: _native.DocidTable, maker: QueryMaker, slots: int, beams: Sequence[int], size: int
) -> Iterator[Method]:
    for mode in ("strict", "floor", "floor, any order"):
        floor = _native.Floor(None if mode == "strict" else maker.floor)
        levels = _native.Levels(table, floor, slots, 0)
        space = _native.SearchSpace(table, levels, None, None)
        order = _ORDERS["any" if "any" in mode else "slots"]

        def answer(
            scores: SlotScores,
            k: int,
            engine: str = "auto",
            width: int = 0,
            space: _native.SearchSpace = space,
            floor: _native.Floor = floor,
            order: int = order,
        ) -> Ids:
            found = space.decode(
                floor,
                scores.tokens,
                scores.scores,
                scores.offsets,
                scores.ends,
                False,
                k,
                order,
                0.0,
                ENGINES.index(engine),
                0,
                False,
                1,
                width,
                None,
            )
            rows: Ids = found[1].tolist()
            return rows

        yield Method("exact", mode, answer, True)
        for engine in ("brute", "best-first") if size <= _SWEPT_DOCIDS else ():
            yield Method(f"exact, {engine}", mode, functools.partial(answer, engine=engine), True)
        for width in beams:
            yield Method(f"beam of {width}", mode, functools.partial(answer, engine="beam", width=width), False)
    if size <= _TRIE_DOCIDS:
        trie = DictTrie(table)
        for width in beams:
            yield Method(f"dict trie, beam of {width}", "strict", functools.partial(trie.beam, width=width), False)


class DictTrie:
    """A trie of dicts, walked in Python: from every prefix of the beam to all its children that have a score."""

    _ROW = -1

    def __init__(self, table: _native.DocidTable) -> None:
        self._root: dict[int, Any] = {}
        for first in range(0, table.rows, _BATCH):
            ids, offsets, _, rows = table.records(first, min(first + _BATCH, table.rows), None)
            tokens, ends = ids.tolist(), offsets.tolist()
            for i, row in enumerate(rows.tolist()):
                node = self._root
                for token in tokens[ends[i] : ends[i + 1]]:
                    node = node.setdefault(token, {})
                node[self._ROW] = row

    def beam(self, scores: SlotScores, k: int, width: int) -> Ids:
        """The k best rows that a beam comes across."""
        held: list[tuple[float, tuple[int, ...], dict[int, Any]]] = [(0.0, (), self._root)]
        results: list[tuple[float, tuple[int, ...], int]] = []
        ends = scores.ends.tolist()
        for t in range(scores.slots):
            part = slice(scores.offsets[t], scores.offsets[t + 1])
            own = dict(zip(scores.tokens[part].tolist(), scores.scores[part].tolist(), strict=True))
            grown = []
            for total, tokens, node in held:
                few, many = (node, own) if len(node) < len(own) else (own, node)
                for token in few:
                    if token in many and token != self._ROW:
                        grown.append((total + own[token], (*tokens, token), node[token]))
            held = heapq.nsmallest(width, grown, key=lambda item: (-item[0], item[1]))
            for total, tokens, node in held:
                if t + 1 == scores.slots:  # no slot is left for the end: all that begins so
                    results += [(total, (*tokens, *rest), row) for rest, row in self._below(node)]
                elif self._ROW in node:
                    results.append((total + ends[t + 1], tokens, node[self._ROW]))
        best = heapq.nsmallest(k, results, key=lambda item: (-item[0], item[1]))
        return [row for _, _, row in best]

    def _below(self, node: dict[int, Any]) -> Iterator[tuple[tuple[int, ...], int]]:
        for token, child in node.items():
            if token == self._ROW:
                yield (), child
            else:
                yield from (((token, *rest), row) for rest, row in self._below(child))


def _table(folder: Path, size: int, console: Console) -> tuple[dict[str, Any], _native.DocidTable]:
    path = folder / f"generated-{size}.docids"
    notes = path.with_suffix(".json")
    if not notes.is_file():
        console.print(f"generating {size:,} docids and their table …")
        apart(_build, path, notes, size)
    opened = []
    for _ in range(5):
        started = time.perf_counter()
        table = _native.DocidTable(read_container(path, "docids", 1, verify=False).arrays)
        opened.append(time.perf_counter() - started)
    return json.loads(notes.read_text()) | {"open_ms": min(opened) * 1e3}, table


def _build(path: Path, notes: Path, size: int) -> None:
    """Runs in a process of its own, so that its peak memory is that of the building."""
    words = path.with_name("generated.vocab")
    if not words.is_file():
        Vocabulary.build(generate_docids(VOCABULARY_DOCIDS), VOCABULARY_SIZE).save(words)
    vocabulary = load_vocabulary(words)
    builder = _native.DocidBuilder(len(vocabulary))
    documents = max(1, size // DOCIDS_PER_DOCUMENT)
    rng = np.random.default_rng(0)
    none = np.zeros(0, np.int64)
    encoding = 0.0
    batch: list[str] = []

    def add() -> float:
        started = time.perf_counter()
        ids, offsets = vocabulary.encode_batch(batch)
        builder.add(ids, offsets, rng.integers(0, documents, len(batch)).astype(np.uint32), b"", none)
        return time.perf_counter() - started

    for docid in generate_docids(size):
        batch.append(docid)
        if len(batch) == _BATCH:
            encoding += add()
            batch.clear()
    if batch:
        encoding += add()
    started = time.perf_counter()
    arrays = builder.finish(documents, True, 0, None)
    building = time.perf_counter() - started
    write_container(path, "docids", 1, {}, arrays)
    table = _native.DocidTable(arrays)
    facts = {
        "docids": table.rows,
        "asked": size,
        "documents": documents,
        "vocabulary": len(vocabulary),
        "mean_tokens": _mean(table.lengths),
        "encode_s": encoding,
        "build_s": building,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "bytes_table": _bytes(arrays, "tokens", "start", "row_doc") / table.rows,
        "bytes_indexed": _bytes(arrays, "") / table.rows,
    }
    with atomic_write(notes) as file:
        file.write(json.dumps(facts, indent=1).encode() + b"\n")


def _bytes(arrays: dict[str, NDArray[Any]], *prefixes: str) -> int:
    return sum(array.nbytes for name, array in arrays.items() if name.startswith(prefixes))


def _mean(lengths: NDArray[np.uint64]) -> float:
    tokens, rows = lengths[::2].astype(np.float64), lengths[1::2].astype(np.float64)
    return float((tokens * rows).sum() / max(rows.sum(), 1))
