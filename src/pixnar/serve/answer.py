"""What workers do: ask the index in force, and put its answers in the words of the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pixnar.index import Index
from pixnar.index.engine import Laps, Query, Wanted
from pixnar.index.explain import explain
from pixnar.index.stages import answered, prepared
from pixnar.search import Hit
from pixnar.serve.replies import to_json

Watch = Callable[[str, float], None]


@dataclass(frozen=True)
class Job:
    """One query with what is wished of its answer."""

    text: str
    k: int
    wanted: Wanted
    threshold: float | None = None
    explain: bool = False


def answers(index: Index, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
    """A result in JSON for each job, or why there is none; `watch` is told the seconds of each stage."""
    quick = [job for job in jobs if not job.explain]
    queries, lap = prepared(index, [job.text for job in quick])
    ready = dict(zip(map(id, quick), queries, strict=True))
    done = [_answer(index, job, ready.get(id(job)), lap) for job in jobs]
    if watch is not None and quick:
        for stage, microseconds in lap.spent.items():
            watch(stage, microseconds / 1e6 / len(quick))
    return done


def _answer(index: Index, job: Job, query: Query | None, lap: Laps) -> bytes | Exception:
    """Of an explained answer only the explanation knows how long its stages took."""
    try:
        if query is None:
            told: dict[str, Any] | None = explain(index, job.text, job.k, job.wanted, job.threshold)
            hits = [Hit(hit["doc_id"], hit["score"], hit["docid"]) for hit in told["hits"]]  # type: ignore[index]
        else:
            told = None
            _, hits = answered(index, query, job.k, job.wanted, job.threshold, lap)
        return to_json({"query": job.text, "hits": _told(index, hits), "explanation": told})
    except Exception as error:  # one query's failure is not that of those it is answered with
        return error


def _told(index: Index, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Hits with what is known of their documents, which one may have removed a moment ago."""
    table, told = index.table, []
    for hit, document in zip(hits, table.described([hit.doc_id for hit in hits]), strict=True):
        tokens = [table.vocabulary.token(v) for v in table.encode(hit.docid)] if hit.docid else []
        title, metadata = (document.title, document.metadata) if document else ("", {})
        told.append({**hit._asdict(), "tokens": tokens, "title": title, "metadata": metadata})
    return told
