"""Middleware around every request: admission, body size, timeout and API key; log line, metrics and headers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pixnar.serve.handlers import json_reply, refusal
from pixnar.serve.queue import RefusedError

if TYPE_CHECKING:
    from pixnar.serve.server import Server

_SAFE = [(b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY")]
_KNOWN = {"/", "/docs", "/docids", "/health", "/info", "/metrics", "/openapi.json", "/ready", "/search"}
_QUIET = {"/health", "/ready", "/metrics"}


class RequestGuard:
    """ASGI middleware: refuses a request before its body is read if the queue is full, and bodies that are too long."""

    def __init__(self, app: ASGIApp, server: Server, access_log: bool = True) -> None:
        self.app, self.server, self.access_log = app, server, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request and record its status, time and errors."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        route = scope["path"] if scope["path"] in _KNOWN else "other"

        async def send_response(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_SAFE]
                if self.server.draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        scope.setdefault("state", {})
        inside = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope  # uvicorn drops the body of HEAD
        try:
            await self._forward(inside, receive, send_response, route)
        except Exception as error:  # no route handled it: the client gets no details
            self.server.metrics.errors.inc()
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            self.server.log("error", level="error", route=route, reason=reason, at=_places(error))
            if not status:
                failed = json_reply({"error": "the server failed at this request; its log says why"}, 500)
                await failed(scope, receive, send_response)
        finally:
            spent = time.perf_counter() - began
            self.server.metrics.requests.labels(route, str(status)).inc()
            self.server.metrics.latency.labels(route).observe(spent)
            if self.access_log and route not in _QUIET:
                facts: dict[str, Any] = scope["state"].get("facts", {})
                ms = round(spent * 1e3, 2)
                self.server.log("request", method=scope["method"], route=route, status=status, ms=ms, **facts)

    async def _forward(self, scope: Scope, receive: Receive, send: Send, route: str) -> None:
        refused = self.server.queue.full() if route == "/search" else None
        if route == "/docids":
            refused = self._unauthorized(dict(scope["headers"]))
        body = b""
        if refused is None:
            try:
                body = await self._body(scope, receive)
            except RefusedError as error:
                refused = error
        if refused is not None:
            await refusal(refused)(scope, receive, send)
            return
        delivered = False

        async def replay() -> Message:
            nonlocal delivered
            if delivered:
                return await receive()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)

    def _unauthorized(self, headers: dict[bytes, bytes]) -> RefusedError | None:
        """The refusal of a live change without a valid key; None if the key is valid."""
        keys = self.server.keys
        if not keys:
            return RefusedError(403, "live changes are off: start the server with an API key to allow them")
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", b"").decode("latin-1")
        if given and keys.opens(given):
            return None
        return RefusedError(401, "no API key, or a wrong one: send it as X-API-Key or Authorization: Bearer KEY")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, if it is short enough and arrives in time."""
        limits = self.server.limits
        too_long = RefusedError(413, f"the body has more than {limits.body_bytes:,} bytes: send less at once")
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limits.body_bytes:
            raise too_long
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.timeout_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the connection was closed before the request was whole")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limits.body_bytes:
                        raise too_long
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RefusedError(
                408, f"the body did not arrive within {limits.timeout_seconds:g} s: send it faster"
            ) from None


def _places(error: BaseException) -> list[str]:
    """The last lines of code in an error's traceback."""
    places, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return places[-5:]
