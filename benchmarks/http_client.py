"""A small HTTP/1.1 client for load tests: connections that stay open, and little work of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote


class Reply(NamedTuple):
    """An answer, and how long it took."""

    status: int
    body: bytes
    seconds: float
    headers: dict[str, str]

    def json(self) -> Any:
        """What it says."""
        return json.loads(self.body)


class Connection:
    """One connection; it is opened when it is needed and again when the server has closed it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> Reply:
        """Send a request and read its answer; an OSError or EOFError if there is none."""
        began = time.perf_counter()
        if self._streams is not None and self._streams[0].at_eof():  # the server did not wait any longer
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        try:
            writer.write(request)
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        except BaseException:
            self.close()
            raise
        if headers.get("connection") == "close":
            self.close()
        return Reply(int(first.split()[1]), body, time.perf_counter() - began, headers)

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def get(path: str, **parameters: Any) -> bytes:
    """A GET request."""
    line = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in parameters.items())
    return f"GET {path}{'?' if line else ''}{line} HTTP/1.1\r\nHost: pixnar\r\n\r\n".encode()


def post(path: str, content: Any, headers: Sequence[str] = ()) -> bytes:
    """A POST request with JSON, or with bytes as they are."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: pixnar",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
