"""Routes of the HTTP API, their checks, and the JSON of their errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any

from fastapi import Body, FastAPI, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import pixnar
from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.documents.filters import parse
from pixnar.search.types import SearchOptions
from pixnar.serve.handlers import ChangeError, Job, json_reply, refusal, to_json
from pixnar.serve.middleware import RequestGuard
from pixnar.serve.queue import Limits, RefusedError
from pixnar.serve.schemas import (
    Addition,
    ChangeOut,
    Docid,
    DocumentId,
    ErrorOut,
    InfoOut,
    Search,
    SearchLine,
    SearchOut,
    StateOut,
    methods_of,
    with_limits,
)
from pixnar.serve.server import Server

_BUSY = {429: "too much is asked at once", 503: "the server is shutting down", 504: "it took too long"}
_INVALID = {400: "the request cannot be understood", 413: "it is too long", 422: "a field is wrong"}
_SEARCH: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorOut, "description": text} for status, text in {**_INVALID, **_BUSY}.items()
}
_CHANGE: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorOut, "description": text}
    for status, text in {
        **_INVALID,
        401: "no key was given, or a wrong one",
        403: "live changes are off",
        503: "the docids cannot be changed now, or the server is shutting down",
    }.items()
}
_Authorization = Annotated[str | None, Header(description="Bearer KEY; looked at before the body is read.")]
_ApiKey = Annotated[str | None, Header(description="The same key, if there is no Authorization.")]
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def make_app(server: Server, *, log_queries: bool = False, access_log: bool = True) -> FastAPI:
    """The HTTP API of a server."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(server.queue.close)
        server.backend.close()

    app = FastAPI(
        title="PIXNAR",
        version=pixnar.__version__,
        description="Search that generates the names of the documents it finds.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    _handle_errors(app, server)
    _add_search(app, server, log_queries)
    _add_changes(app, server)
    _add_operations(app, server)
    for path, name in (("/", "index.html"), ("/docs", "docs.html")):
        app.get(path, include_in_schema=False)(_page(name))
    app.openapi = with_limits(app, server.limits)  # type: ignore[method-assign]
    app.add_middleware(RequestGuard, server=server, access_log=access_log)
    return app


def _add_search(app: FastAPI, server: Server, log_queries: bool) -> None:
    limits, queue, backend = server.limits, server.queue, server.backend

    async def run_search(request: Request, body: Search) -> Response:
        began = time.perf_counter()
        texts = [body.query] if isinstance(body.query, str) else body.query
        _check(body, texts, limits)
        where = None if body.where is None else parse(body.where)
        options = SearchOptions(
            k=body.k,
            threshold=body.threshold,
            allow=body.allow,
            forbid=body.forbid,
            where=where,
            beam=body.width if body.decode == "beam" else 0,
            spelling=body.spelling,
        )
        jobs = [Job(text, options, body.explain) for text in texts]
        request.state.facts = {"queries": len(jobs), "k": body.k} | ({"text": texts} if log_queries else {})
        results = await _wait(request, queue.ask(jobs), limits.timeout_seconds)
        spent = round((time.perf_counter() - began) * 1e6, 1)
        head = b'{"index": %s, "microseconds": %s, "results": [' % (to_json(backend.name), to_json(spent))
        return json_reply(head + b", ".join(results) + b"]}")

    @app.post("/search", response_model=SearchOut, responses=_SEARCH, tags=["search"])
    async def search(request: Request, body: Annotated[Search, Body()]) -> Response:
        """The best documents of one query or several."""
        return await run_search(request, body)

    @app.get("/search", response_model=SearchOut, responses=_SEARCH, tags=["search"])
    async def search_line(request: Request, parameters: Annotated[SearchLine, Query()]) -> Response:
        """The same for one query, in an address."""
        return await run_search(request, parameters.as_search())


def _add_changes(app: FastAPI, server: Server) -> None:
    limits, backend = server.limits, server.backend

    def counts() -> Response:
        facts = backend.facts()
        return json_reply({"documents": facts["documents"], "pairs": facts["docids"]})

    @app.post("/docids", response_model=ChangeOut, responses=_CHANGE, tags=["live changes"])
    async def add_docids(
        body: Annotated[Addition, Body()],
        authorization: _Authorization = None,
        x_api_key: _ApiKey = None,
    ) -> Response:
        """Let docids name documents, new or known; searches find them at once, and they are on disk."""
        await run_in_threadpool(backend.add, body, limits)
        return await run_in_threadpool(counts)

    @app.delete("/docids", response_model=ChangeOut, responses=_CHANGE, tags=["live changes"])
    async def remove_docids(
        doc_id: Annotated[list[DocumentId], Query(default_factory=list, description="Remove these documents.")],
        docid: Annotated[
            list[Docid], Query(default_factory=list, description="Remove these docids; with doc_id, of it alone.")
        ],
        authorization: _Authorization = None,
        x_api_key: _ApiKey = None,
    ) -> Response:
        """Remove documents, or docids, or the docids of a document. What is not there need not be removed."""
        await run_in_threadpool(backend.remove, doc_id, docid, limits)
        return await run_in_threadpool(counts)


def _add_operations(app: FastAPI, server: Server) -> None:
    @app.get("/health", response_model=StateOut, tags=["operations"])
    async def health() -> Response:
        """Whether the process lives."""
        return json_reply({"status": "ok"})

    @app.get(
        "/ready",
        response_model=StateOut,
        responses={503: {"model": ErrorOut, "description": _BUSY[503]}},
        tags=["operations"],
    )
    async def ready() -> Response:
        """Whether requests should be sent here: not while the server closes."""
        if server.draining:
            raise RefusedError(503, "the server is shutting down: ask another", 1)
        return json_reply({"status": "ready"})

    @app.get("/metrics", response_class=Response, tags=["operations"])
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(
            await run_in_threadpool(server.metrics.text), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    @app.get("/info", response_model=InfoOut, tags=["operations"])
    async def info() -> Response:
        """What is served, and how much may be asked."""
        facts = await run_in_threadpool(server.backend.facts)
        limits = {name: getattr(server.limits, name) for name in ("k", "query_characters", "queries", "width")}
        own = {"index": server.backend.name, "version": pixnar.__version__}
        return json_reply(own | facts | {"limits": limits, "live_changes": bool(server.keys)})


def _page(name: str) -> Callable[[], Awaitable[Response]]:
    content = (resources.files("pixnar.serve") / "page" / name).read_bytes()
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache", "Referrer-Policy": "no-referrer"}

    async def page() -> Response:
        return Response(content, media_type="text/html; charset=utf-8", headers=headers)

    return page


async def _wait(request: Request, futures: list[Future[Any]], seconds: float) -> list[bytes]:
    """The answers, if they arrive in time; jobs are cancelled on a timeout or when the client hangs up."""
    answers = asyncio.gather(*map(asyncio.wrap_future, futures))
    disconnect = asyncio.create_task(_disconnected(request))
    try:
        both: list[asyncio.Future[Any]] = [answers, disconnect]
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            if disconnect.done():
                raise RefusedError(499, "whoever asked has hung up")
            raise RefusedError(504, f"no answer within {seconds:g} s: ask for fewer queries or a smaller k")
        for result in answers.result():
            if isinstance(result, Exception):
                raise result
        return answers.result()
    finally:
        disconnect.cancel()
        answers.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check(body: Search, texts: Sequence[str], limits: Limits) -> None:
    """Refuse a search that is over a limit."""
    if not texts or len(texts) > limits.queries:
        raise RefusedError(422, f"query: {len(texts)} queries; send 1 to {limits.queries} in one request")
    for text in texts:
        if len(text) > limits.query_characters:
            raise RefusedError(422, f"query: {len(text)} characters; send at most {limits.query_characters}")
        if not text.strip():
            raise RefusedError(422, "query: it is empty; send some text")
    for name, value, most in (("k", body.k, limits.k), ("width", body.width, limits.width)):
        if value > most:
            raise RefusedError(422, f"{name}: {value}; send at most {most}")
    for name, ids in (("allow", body.allow), ("forbid", body.forbid)):
        if ids is not None and len(ids) > limits.ids:
            raise RefusedError(422, f"{name}: {len(ids)} ids; send at most {limits.ids}")


def _handle_errors(app: FastAPI, server: Server) -> None:
    """Error handlers: one line for the client; the server's own failures are logged and reported without details."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        return refusal(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return json_reply({"error": _line(error)}, 422)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        line = {
            400: "the body cannot be read: send JSON in UTF-8, not nested too deep, as /docs shows it",
            404: "there is no such address: see /docs",
            405: "this address does not take that method: see /docs",
        }
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status_code == 405:
            headers["allow"] = ", ".join(methods_of(app, request.url.path))
        return json_reply({"error": line.get(error.status_code, str(error.detail))}, error.status_code, headers)

    @app.exception_handler(PixnarError)
    async def pixnar_error(request: Request, error: Exception) -> Response:
        if isinstance(error, FileFormatError):
            raise error  # not the client's fault: the middleware logs it and answers 500
        if isinstance(error, ChangeError):
            server.log("change-failed", level="error", route=request.url.path, reason=str(error))
            return refusal(
                RefusedError(503, "the docids cannot be changed now: try again; the server's log says why", 1)
            )
        return json_reply({"error": str(error)}, 400)


def _line(error: RequestValidationError) -> str:
    """One line about the first problem of a request."""
    first = error.errors()[0]
    if tuple(first["loc"]) == ("body",):
        return "the body is no JSON object: send one, with Content-Type: application/json, as /docs shows it"
    where = ".".join(str(part) for part in first["loc"][1:] if "[" not in str(part) and part != "str")
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return "the body is no JSON: send an object as /docs shows it"
    return f"{where[:100] or 'body'}: {message[:1].lower()}{message[1:300]}; see /docs"
