"""The routes: what may be asked, by whom, and how errors are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any

from fastapi import Body, FastAPI, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

import pixnar
from pixnar.errors import FileFormatError, PixnarError
from pixnar.index.index import wanted_of
from pixnar.serve.answer import Job, answers
from pixnar.serve.asked import (
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
)
from pixnar.serve.change import add, remove
from pixnar.serve.desk import Desk
from pixnar.serve.gate import Gate
from pixnar.serve.keys import Keys
from pixnar.serve.limits import Limits, RefusedError
from pixnar.serve.logs import Log
from pixnar.serve.metrics import Metrics
from pixnar.serve.replies import json_reply, refusal
from pixnar.serve.shelf import Shelf

_CALM = {429: "too much is asked at once", 503: "the server is starting or shutting down"}
_TELL = {
    400: "the request cannot be understood",
    413: "it is too long",
    422: "a field is wrong",
    504: "it took too long",
}
_SEARCH: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorOut, "description": text} for status, text in {**_TELL, **_CALM}.items()
}
_CHANGE: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorOut, "description": text}
    for status, text in {
        **_TELL,
        401: "no key was given, or a wrong one",
        403: "live changes are off",
        503: _CALM[503],
    }.items()
}
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class Server:
    """All that a running server has: the index, who waits for it, what is counted, and whether it is closing."""

    def __init__(self, shelf: Shelf, desk: Desk[Job], metrics: Metrics, limits: Limits, keys: Keys, log: Log) -> None:
        self.shelf, self.desk, self.metrics, self.limits, self.keys, self.log = shelf, desk, metrics, limits, keys, log
        self.draining = False


def make_server(
    shelf: Shelf,
    limits: Limits | None = None,
    *,
    keys: Keys | None = None,
    workers: int = 2,
    batch: int = 1,
    log: Log | None = None,
) -> Server:
    """A desk with workers in front of a shelf, and their figures."""
    limits = limits or Limits()

    def work(jobs: Sequence[Job]) -> Sequence[Any]:
        return answers(shelf.index, jobs, lambda stage, seconds: metrics.stages.labels(stage).observe(seconds))

    def watch(waited: float, taken: int) -> None:
        metrics.stages.labels("wait").observe(waited)
        metrics.batches.observe(taken)

    desk: Desk[Job] = Desk(work, limits, workers=workers, batch=batch, seconds=shelf.seconds, watch=watch)
    metrics = Metrics(
        {
            "queue_queries": ("Queries that wait for a worker.", lambda: desk.waiting),
            "running_queries": ("Queries that are worked on.", lambda: desk.running),
            "index_swaps": ("Times that a new index was put in force.", lambda: shelf.swaps),
            "index_refusals": ("Times that the index folder could not be used.", lambda: shelf.refusals),
            "documents": ("Documents that can be found.", lambda: shelf.index.table.documents),
        }
    )
    return Server(shelf, desk, metrics, limits, keys or Keys([]), log or Log())


def make_app(server: Server, *, log_queries: bool = False, access_log: bool = True) -> FastAPI:
    """The HTTP API of a server."""
    limits, desk, shelf = server.limits, server.desk, server.shelf

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(desk.close)
        shelf.close()

    app = FastAPI(
        title="PIXNAR",
        version=pixnar.__version__,
        description="Search that generates the names of the documents it finds.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    _errors(app, server)

    async def searched(request: Request, wish: Search) -> Response:
        began = time.perf_counter()
        texts = [wish.query] if isinstance(wish.query, str) else wish.query
        _check(wish, texts, limits)
        wanted = wanted_of(wish.allow, wish.forbid, wish.where, wish.width if wish.decode == "beam" else 0)
        jobs = [Job(text, wish.k, wanted, wish.threshold, wish.explain) for text in texts]
        request.state.facts = {"queries": len(jobs), "k": wish.k} | ({"text": texts} if log_queries else {})
        futures = [asyncio.wrap_future(future) for future in desk.ask(jobs)]
        try:
            async with asyncio.timeout(limits.timeout_seconds):
                results = [await future for future in futures]
        except TimeoutError:
            for future in futures:
                future.cancel()
            raise RefusedError(
                504, f"no answer within {limits.timeout_seconds:g} s: ask for fewer queries or a smaller k"
            ) from None
        for result in results:
            if isinstance(result, PixnarError):
                raise result
        spent = (time.perf_counter() - began) * 1e6
        return json_reply({"index": shelf.name, "microseconds": round(spent, 1), "results": results})

    @app.post("/search", response_model=SearchOut, responses=_SEARCH, tags=["search"])
    async def search(request: Request, wish: Annotated[Search, Body()]) -> Response:
        """The best documents of one query or several."""
        return await searched(request, wish)

    @app.get("/search", response_model=SearchOut, responses=_SEARCH, tags=["search"])
    async def search_line(request: Request, wish: Annotated[SearchLine, Query()]) -> Response:
        """The same for one query, in an address."""
        return await searched(request, wish.whole())

    def opened(authorization: str | None, x_api_key: str | None) -> None:
        if not server.keys:
            raise RefusedError(403, "live changes are off: start the server with an API key to allow them")
        given = x_api_key or (authorization or "").removeprefix("Bearer ").strip()
        if not given or not server.keys.opens(given):
            raise RefusedError(401, "no API key, or a wrong one: send it as X-API-Key or Authorization: Bearer KEY")

    def changed() -> Response:
        table = shelf.index.table
        return json_reply({"documents": table.documents, "pairs": table.pairs})

    @app.post("/docids", response_model=ChangeOut, responses=_CHANGE, tags=["live changes"])
    async def add_docids(
        wish: Annotated[Addition, Body()],
        authorization: Annotated[str | None, Header()] = None,
        x_api_key: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Let docids name documents, new or known; searches find them at once, and they are on disk."""
        opened(authorization, x_api_key)
        await run_in_threadpool(add, shelf.index.table, wish, limits)
        return changed()

    @app.delete("/docids", response_model=ChangeOut, responses=_CHANGE, tags=["live changes"])
    async def remove_docids(
        doc_id: Annotated[list[DocumentId], Query(default_factory=list, description="Remove these documents.")],
        docid: Annotated[
            list[Docid], Query(default_factory=list, description="Remove these docids; with doc_id, of it alone.")
        ],
        authorization: Annotated[str | None, Header()] = None,
        x_api_key: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Remove documents, or docids, or the docids of a document. What is not there need not be removed."""
        opened(authorization, x_api_key)
        await run_in_threadpool(remove, shelf.index.table, doc_id, docid, limits)
        return changed()

    @app.get("/health", response_model=StateOut, tags=["operations"])
    async def health() -> Response:
        """Whether the process lives."""
        return json_reply({"status": "ok"})

    @app.get(
        "/ready",
        response_model=StateOut,
        responses={503: {"model": ErrorOut, "description": _CALM[503]}},
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
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/info", response_model=InfoOut, tags=["operations"])
    async def info() -> Response:
        """What is served, and how much may be asked."""
        index = shelf.index
        fusion = index.engine.fusion
        return json_reply(
            {
                "index": shelf.name,
                "version": pixnar.__version__,
                "documents": index.table.documents,
                "docids": index.table.pairs,
                "vocabulary": index.table.vocab_size,
                "slots": index.engine.scorer.slots,
                "sources": ["docids"] if fusion is None else list(fusion.weights),
                "keys": list(index.table.snapshot().documents.columns.keys),
                "limits": {
                    "k": limits.k,
                    "query_characters": limits.query_characters,
                    "queries": limits.queries,
                    "width": limits.width,
                },
                "live_changes": bool(server.keys),
            }
        )

    for path, name in (("/", "index.html"), ("/docs", "docs.html")):
        app.get(path, include_in_schema=False)(_page(name))
    app.openapi = _with_limits(app, limits)  # type: ignore[method-assign]
    app.add_middleware(Gate, server=server, access_log=access_log)
    return app


def _page(name: str) -> Callable[[], Awaitable[Response]]:
    content = (resources.files("pixnar.serve") / "page" / name).read_bytes()
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache", "Referrer-Policy": "no-referrer"}

    async def page() -> Response:
        return Response(content, media_type="text/html; charset=utf-8", headers=headers)

    return page


def _check(wish: Search, texts: Sequence[str], limits: Limits) -> None:
    """Refuse what is over a limit."""
    if not texts or len(texts) > limits.queries:
        raise RefusedError(422, f"query: {len(texts)} queries; send 1 to {limits.queries} in one request")
    for text in texts:
        if len(text) > limits.query_characters:
            raise RefusedError(422, f"query: {len(text)} characters; send at most {limits.query_characters}")
        if not text.strip():
            raise RefusedError(422, "query: it is empty; send some text")
    for name, value, most in (("k", wish.k, limits.k), ("width", wish.width, limits.width)):
        if value > most:
            raise RefusedError(422, f"{name}: {value}; send at most {most}")
    for name, ids in (("allow", wish.allow), ("forbid", wish.forbid)):
        if ids is not None and len(ids) > limits.ids:
            raise RefusedError(422, f"{name}: {len(ids)} ids; send at most {limits.ids}")


def _errors(app: FastAPI, server: Server) -> None:
    """Whatever goes wrong is told in one line; what is not the asker's fault is logged, and told without details."""

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
        line = {404: "there is no such address: see /docs", 405: "this address does not take that method: see /docs"}
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status_code == 405:
            headers["allow"] = ", ".join(_methods(app, request.url.path))
        return json_reply({"error": line.get(error.status_code, str(error.detail))}, error.status_code, headers)

    @app.exception_handler(PixnarError)
    async def ours(request: Request, error: Exception) -> Response:
        if isinstance(error, FileFormatError):
            return await unexpected(request, error)
        return json_reply({"error": str(error)}, 400)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        server.metrics.errors.inc()
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        server.log("error", level="error", route=request.url.path, reason=reason, at=_where(error))
        return json_reply({"error": "the server failed at this request; its log says why"}, 500)


def _line(error: RequestValidationError) -> str:
    """The first thing that is wrong with a request."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:] if "[" not in str(part) and part != "str")
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return "the body is no JSON: send an object as /docs shows it"
    return f"{where or 'body'}: {message[:1].lower()}{message[1:]}; see /docs"


def _methods(app: FastAPI, path: str) -> list[str]:
    """What an address takes."""
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path == path]
    return sorted({method for route in routes for method in route.methods or ()})


def _with_limits(app: FastAPI, limits: Limits) -> Callable[[], dict[str, Any]]:
    """The description of the API, in which fields have the limits of this server."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = FastAPI.openapi(app)
            text = {"type": "string", "pattern": r"\S", "maxLength": limits.query_characters}
            fields = schema["components"]["schemas"]["Search"]["properties"]
            fields["query"]["anyOf"] = [
                text,
                {"type": "array", "items": text, "minItems": 1, "maxItems": limits.queries},
            ]
            fields["k"]["maximum"], fields["width"]["maximum"] = limits.k, limits.width
            for name in ("allow", "forbid"):
                fields[name]["anyOf"][0]["maxItems"] = limits.ids
            for parameter in schema["paths"]["/search"]["get"]["parameters"]:
                name, more = parameter["name"], parameter["schema"]
                more.update({"q": text, "k": {"maximum": limits.k}, "width": {"maximum": limits.width}}.get(name, {}))
        return app.openapi_schema or {}

    return described


def _where(error: BaseException) -> list[str]:
    """The last places a failure came through."""
    places, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return places[-5:]
