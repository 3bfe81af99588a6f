"""Handlers: search jobs and live updates run against an index, and the JSON of their answers and refusals."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from pixnar.base.errors import PixnarError
from pixnar.base.storage import in_memory
from pixnar.corpus.records import Document
from pixnar.index import Index
from pixnar.search import Hit
from pixnar.search.explain import explain
from pixnar.search.ranker import PreparedQuery, Stopwatch
from pixnar.search.types import SearchOptions
from pixnar.serve.queue import Limits, RefusedError
from pixnar.serve.schemas import Addition, Named
from pixnar.table import DocidTable

_DEEPEST = 64  # levels of a value that is nested too deep for JSON
_CLOSING = (408, 413)  # statuses after which the rest of the request may still be on the connection


def to_json(content: Any) -> bytes:
    """JSON in ASCII, since ids may hold lone surrogates; values that JSON cannot hold become null."""
    try:
        return json.dumps(content, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return json.dumps(_plain(content, _DEEPEST), allow_nan=False).encode()


def json_reply(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response with JSON: an object, or bytes that are JSON already."""
    body = content if isinstance(content, bytes) else to_json(content)
    return Response(body, status, headers, "application/json")


def refusal(error: RefusedError) -> Response:
    """The response of a refused request, with Retry-After where it has one."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if error.status in _CLOSING:
        headers["Connection"] = "close"
    return json_reply({"error": error.line}, error.status, headers)


def _plain(value: Any, levels: int) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(inside, levels - 1) for key, inside in value.items()} if levels else None
    if isinstance(value, list | tuple):
        return [_plain(inside, levels - 1) for inside in value] if levels else None
    return value


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


def _answer(index: Index, job: Job, query: PreparedQuery | None, lap: Stopwatch) -> bytes | Exception:
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


class ChangeError(PixnarError):
    """A valid change that could not be made: the table is busy or its disk has a problem."""


def add(table: DocidTable, addition: Addition, limits: Limits) -> None:
    """Add documents and docids, all or none."""
    pairs = [(named.doc_id, docid) for named in addition.documents for docid in named.docids]
    if len(pairs) > limits.ids:
        raise RefusedError(422, f"documents: {len(pairs)} docids; send at most {limits.ids} in one request")
    encoded = [(doc_id, table.encode(docid)) for doc_id, docid in pairs]
    with _changing(table):
        table.refresh()
        documents = _documents(table, addition.documents)
        table.change(add=encoded, spellings=[docid for _, docid in pairs], documents=documents)


def remove(table: DocidTable, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
    """Remove documents, docids, or pairs of both."""
    if not doc_ids and not docids:
        raise RefusedError(422, "nothing to remove: send doc_id, docid or both")
    if len(doc_ids) * max(1, len(docids)) > limits.ids:
        raise RefusedError(422, f"too much at once: send at most {limits.ids} pairs of doc_id and docid")
    encoded = [table.encode(docid) for docid in docids]
    with _changing(table):
        if not docids:
            table.change(remove_documents=doc_ids)
        elif not doc_ids:
            table.change(remove_docids=encoded)
        else:
            table.change(remove_pairs=[(doc_id, docid) for doc_id in doc_ids for docid in encoded])


@contextlib.contextmanager
def _changing(table: DocidTable) -> Iterator[None]:
    """Exclusive access to the table; files it reads again are not mapped. Errors become `ChangeError`."""
    try:
        with in_memory(), table.alone():
            yield
    except (PixnarError, OSError) as error:
        raise ChangeError(str(error)) from error


def _documents(table: DocidTable, additions: Sequence[Named]) -> list[Document]:
    """Documents with their new title and metadata; a known document keeps whatever is not given."""
    described = [new for new in additions if new.title is not None or new.metadata is not None]
    ids = [new.doc_id for new in described]
    known = dict(zip(ids, table.described(ids), strict=True))
    documents: dict[str, Document] = {}
    for new in described:
        old = documents.get(new.doc_id) or known[new.doc_id] or Document(new.doc_id, "", "", {})
        title = old.title if new.title is None else new.title
        metadata = old.metadata if new.metadata is None else new.metadata
        documents[new.doc_id] = Document(new.doc_id, title, "", metadata)
    return list(documents.values())
