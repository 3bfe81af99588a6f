"""What workers do: ask the index in force, and put its answers in the words of the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.index import Index
from pixnar.search import Hit
from pixnar.search.explain import explain
from pixnar.search.options import SearchOptions
from pixnar.search.ranker import Query, Stopwatch
from pixnar.serve.responses import to_json

Watch = Callable[[str, float], None]


@dataclass(frozen=True)
class Job:
    """One query with what is wished of its answer."""

    text: str
    options: SearchOptions
    explain: bool = False


def answers(index: Index, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
    """A result in JSON for each job, or why there is none; `watch` is told the seconds of each stage."""
    refused = unanswerable(index, jobs)
    quick = [job for job in jobs if not job.explain and id(job) not in refused]
    lap = Stopwatch()
    queries = index.searcher.prepare([job.text for job in quick], [job.options.spelling for job in quick], lap)
    ready = dict(zip(map(id, quick), queries, strict=True))
    done = [refused.get(id(job)) or _answer(index, job, ready.get(id(job)), lap) for job in jobs]
    if watch is not None and quick:
        for stage, microseconds in lap.spent.items():
            watch(stage, microseconds / 1e6 / len(quick))
    return done


def unanswerable(index: Index, jobs: Sequence[Job]) -> dict[int, PixnarError]:
    """Why some jobs cannot be answered, by the id of the job: known before others are prepared together with them."""
    found: dict[int, PixnarError] = {}
    for job in jobs:
        try:
            index.searcher.check_spelling(job.options.spelling)
        except PixnarError as error:
            found[id(job)] = error
    return found


def _answer(index: Index, job: Job, query: Query | None, lap: Stopwatch) -> bytes | Exception:
    """Of an explained answer only the explanation knows how long its stages took."""
    try:
        if query is None:
            told: dict[str, Any] | None = explain(index.searcher, job.text, job.options)
            corrected = told["query"] if told["corrected_from"] else None  # type: ignore[index]
            hits = [Hit(hit["doc_id"], hit["score"], hit["docid"]) for hit in told["hits"]]  # type: ignore[index]
        else:
            told, corrected = None, query.text if query.original else None
            _, hits = index.searcher.answer(query, job.options, lap)
        return to_json({"query": job.text, "corrected": corrected, "hits": _told(index, hits), "explanation": told})
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
