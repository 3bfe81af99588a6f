"""The cost of a vocabulary: tokens per docid, postings, time of exact decoding, bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.research.reproduce.study import Study
from pixnar.search import SlotScores
from pixnar.table import DocidTable

DOCUMENTS = 100  # that decoding is asked for
_REPEATS = 5
_WARM_UP = 10  # queries

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Cost:
    """What searching an index by docids alone costs, as means over queries; one thread, every token scored.

    `postings` counts the places in docids whose token scores above its floor there: what an engine without bounds
    reads. `work` is what the engine reports: rows and nodes that it looked at.
    """

    slots: int
    tokens_per_docid: float
    tokens_scored: int  # for every slot that counts
    postings: float
    work: float
    engines: list[str]  # those that decoding took
    score_ms: float
    decode_ms: float
    decode_p99_ms: float
    table_bytes_per_docid: float  # docids and their index, without spellings and titles
    row_bytes: int
    row_bytes_per_docid: float


def measure_costs(
    indexes: Mapping[str, Index], texts: Sequence[str], *, k: int = DOCUMENTS, repeats: int = _REPEATS
) -> dict[str, Cost]:
    """The cost of several indexes, each query asked of all of them in turn; a time is the best of `repeats`.

    Times are CPU time of this thread, which does all the work. On a busy machine longer calls are interrupted more
    often, so wall-clock time would exaggerate the difference.
    """
    queries = {label: index.queries(texts) for label, index in indexes.items()}
    counts = {label: occurrences(index.table, index.ranker.scorer.slots) for label, index in indexes.items()}
    for label, index in indexes.items():
        for query in queries[label][:_WARM_UP]:
            index.ranker.decode(index.ranker.scored(query), k)
    score = {label: np.full(len(texts), np.inf) for label in indexes}
    decode = {label: np.full(len(texts), np.inf) for label in indexes}
    postings = {label: np.zeros(len(texts)) for label in indexes}
    work = {label: np.zeros(len(texts)) for label in indexes}
    engines: dict[str, set[str]] = {label: set() for label in indexes}
    for i in range(len(texts)):
        scored: dict[str, SlotScores] = {}
        for _ in range(repeats):
            for label, index in indexes.items():
                began = time.thread_time()
                scored[label] = index.ranker.scored(queries[label][i])
                score[label][i] = min(score[label][i], time.thread_time() - began)
        for _ in range(repeats):
            for label, index in indexes.items():
                rule, order = index.ranker.scorer.rule, index.ranker.scorer.order
                began = time.thread_time()
                found = index.ranker.decoder.documents(
                    scored[label], k, aggregate=rule.aggregate, order=order, length_norm=rule.length_power
                )
                decode[label][i] = min(decode[label][i], time.thread_time() - began)
                work[label][i] = found.work
                engines[label].add(found.engine)
        for label, index in indexes.items():
            by_slot = index.ranker.scorer.order == "slots"
            postings[label][i] = count_postings(scored[label], counts[label], by_slot=by_slot)
    out = {}
    for label, index in indexes.items():
        table, sizes = index.table, index.table.sizes
        docids = max(1, table.snapshot().table.rows)
        out[label] = Cost(
            slots=index.ranker.scorer.slots,
            tokens_per_docid=float(index.manifest["facts"]["tokens_per_docid"]),
            tokens_scored=index.rows.count - 1,
            postings=float(postings[label].mean()),
            work=float(work[label].mean()),
            engines=sorted(engines[label]),
            score_ms=1e3 * float(score[label].mean()),
            decode_ms=1e3 * float(decode[label].mean()),
            decode_p99_ms=1e3 * float(np.percentile(decode[label], 99)),
            table_bytes_per_docid=(sizes["docids"] + sizes["index"]) / docids,
            row_bytes=index.rows.nbytes,
            row_bytes_per_docid=index.rows.nbytes / docids,
        )
    return out


def kept_costs(study: Study, folders: Mapping[str, Path]) -> dict[str, Cost]:
    """The cost of some indexes of a study by docids alone; measured once and kept with its figures."""

    def measured() -> dict[str, Any]:
        study.say(f"{study.name}: measuring what decoding costs")
        opened = {label: study.opened(folder, "docids", threads=1) for label, folder in folders.items()}
        texts = read_queries(study.corpus, "dev", study.plan.timed).texts
        return {label: asdict(cost) for label, cost in measure_costs(opened, texts).items()}

    key = [{label: folder.name for label, folder in folders.items()}, study.plan.timed]
    return {label: Cost(**values) for label, values in study.kept("cost of decoding", key, measured).items()}


def occurrences(table: DocidTable, slots: int) -> Counts:
    """How many docids have a token at a place [slots, V]; places beyond the slots do not count."""
    counts = np.zeros((slots, table.vocab_size), np.int64)
    by_place: list[list[int]] = [[] for _ in range(slots)]
    for tokens, _ in table:
        for place, token in enumerate(tokens[:slots]):
            by_place[place].append(token)
    for place, ids in enumerate(by_place):
        counts[place] = np.bincount(np.array(ids, np.int64), minlength=table.vocab_size)
    return counts


def count_postings(scores: SlotScores, counts: Counts, *, by_slot: bool) -> int:
    """Occurrences of the tokens that a query scores above their floor; in any order slot 0 stands for all places."""
    if by_slot:
        named = [scores.tokens[begin:end] for begin, end in pairwise(scores.offsets.tolist())]
        return int(sum(row[ids].sum() for row, ids in zip(counts, named, strict=True)))
    return int(counts[:, scores.tokens].sum())
