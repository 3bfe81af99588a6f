"""Search jobs: run queries against an index and turn their hits into JSON."""

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
    """One query with its search options."""

    text: str
    options: SearchOptions
    explain: bool = False


def answers(index: Index, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
    """A JSON result for each job, or its error; `watch` receives the seconds of each stage."""
    refused = unanswerable(index, jobs)
    plain = [job for job in jobs if not job.explain and id(job) not in refused]
    lap = Stopwatch()
    queries = index.searcher.prepare([job.text for job in plain], [job.options.spelling for job in plain], lap)
    query_of = dict(zip(map(id, plain), queries, strict=True))
    results = [refused.get(id(job)) or _answer(index, job, query_of.get(id(job)), lap) for job in jobs]
    if watch is not None and plain:
        for stage, microseconds in lap.spent.items():
            watch(stage, microseconds / 1e6 / len(plain))
    return results


def unanswerable(index: Index, jobs: Sequence[Job]) -> dict[int, PixnarError]:
    """Errors of jobs that cannot be answered, by `id(job)`; checked before the other jobs are encoded together."""
    errors: dict[int, PixnarError] = {}
    for job in jobs:
        try:
            index.searcher.check_spelling(job.options.spelling)
        except PixnarError as error:
            errors[id(job)] = error
    return errors


def _answer(index: Index, job: Job, query: Query | None, lap: Stopwatch) -> bytes | Exception:
    """The JSON result of a job; without a prepared `query` it is explained, and the explanation has its timings."""
    try:
        if query is None:
            explanation: dict[str, Any] | None
            explanation = explain(index.searcher, job.text, job.options)
            corrected = explanation["query"] if explanation["corrected_from"] else None
            hits = [Hit(hit["doc_id"], hit["score"], hit["docid"]) for hit in explanation["hits"]]
        else:
            explanation, corrected = None, query.text if query.original else None
            _, hits = index.searcher.answer(query, job.options, lap)
        result = {"query": job.text, "corrected": corrected, "hits": _hits(index, hits), "explanation": explanation}
        return to_json(result)
    except Exception as error:  # a query that fails does not fail the others of its batch
        return error


def _hits(index: Index, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Hits with tokens, title and metadata; empty for a document that was removed a moment ago."""
    table, shown = index.table, []
    for hit, document in zip(hits, table.described([hit.id for hit in hits]), strict=True):
        tokens = [table.vocabulary.token(v) for v in table.encode(hit.docid)] if hit.docid else []
        title, metadata = (document.title, document.metadata) if document else ("", {})
        shown.append({**hit.facts(), "tokens": tokens, "title": title, "metadata": metadata})
    return shown
