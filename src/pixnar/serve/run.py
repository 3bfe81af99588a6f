"""Server process: its socket, its signals, and a graceful shutdown that answers every admitted query."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from pixnar.base.errors import PixnarError
from pixnar.serve.app import make_app
from pixnar.serve.live_index import LiveIndex
from pixnar.serve.queue import Limits
from pixnar.serve.schemas import LONGEST_FILTER
from pixnar.serve.server import ApiKeys, Log, LogHandler, Server, make_server

_IDLE = 75  # seconds a connection may wait for its next request: longer than proxies keep theirs
_LAST = 20  # seconds beside a request's own after which a closing server no longer waits for answers to be fetched
_SILENCE = 0.2  # seconds between closing the socket and closing open connections


@dataclass(frozen=True)
class Settings:
    """Settings of a server process."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 2
    batch: int = 0  # queries that a worker takes at once; 0: one on a CPU, 16 on a device
    sources: str = "all"
    device: str | None = None
    cache: int = 1000  # queries whose vectors are remembered
    limits: Limits = field(default_factory=Limits)
    keys: ApiKeys = field(default_factory=lambda: ApiKeys([]))
    drain_seconds: float = 0.5
    look_seconds: float = 1.0  # between looks at the index folder; 0: never
    access_log: bool = True
    log_queries: bool = False


def serve(folder: Path, settings: Settings) -> None:
    """Serve an index until a signal ends the process."""
    log = Log()
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).handlers = [LogHandler(log)]
        logging.getLogger(name).propagate = False
    listener = _socket(settings.host, settings.port)
    with listener:
        threads = 1 if settings.device is None else settings.workers
        live = LiveIndex(
            folder, log, threads=threads, cache=settings.cache, sources=settings.sources, device=settings.device
        )
        server = make_server(
            live,
            settings.limits,
            keys=settings.keys,
            workers=settings.workers if settings.device is None else 1,
            batch=settings.batch or (1 if settings.device is None else 16),
            log=log,
        )
        app = make_app(server, log_queries=settings.log_queries, access_log=settings.access_log)
        if settings.look_seconds:
            live.watch(settings.look_seconds)
        config = uvicorn.Config(
            app,
            http="h11",  # whose limit of a request's head is set below; others that are installed have none
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE,
            timeout_graceful_shutdown=_LAST + math.ceil(settings.limits.timeout_seconds),
            h11_max_incomplete_event_size=_head_bytes(settings.limits),
        )
        listener.listen(1024)
        host, port = listener.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        log("serving", index=str(folder), address=address, documents=live.index.table.documents)
        _Process(config, server, settings.drain_seconds).run([listener])
        log("stopped", answered=_count(server))


def _head_bytes(limits: Limits) -> int:
    """Size limit of a request's head: query and filter at up to twelve bytes a character, and the headers."""
    return 12 * (limits.query_characters + LONGEST_FILTER) + 64 * 1024


class _Process(uvicorn.Server):
    """Graceful shutdown: report not ready, keep answering for a moment, then close and finish admitted requests."""

    def __init__(self, config: uvicorn.Config, server: Server, drain: float) -> None:
        super().__init__(config)
        self._server, self._drain = server, drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal starts the shutdown; a second Ctrl-C forces it."""
        if self._server.draining and sig == signal.SIGINT:
            self.force_exit = True
        if not self._server.draining:
            self._server.draining = True
            # A signal may interrupt anything, a line of the log included: the rest runs in the event loop.
            asyncio.get_running_loop().call_soon_threadsafe(self._stop_later, signal.Signals(sig).name)

    def _stop_later(self, name: str) -> None:
        self._server.log("stopping", signal=name)
        asyncio.get_running_loop().call_later(self._drain, self._stop_listening)

    def _stop_listening(self) -> None:
        """Accept no new connections; requests on open connections are still answered."""
        for server in self.servers:
            server.close()
        asyncio.get_running_loop().call_later(_SILENCE, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def _socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends answers without delay only where it reads that the protocol is TCP
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PixnarError(f"cannot serve at {host}:{port}: {reason}; choose another --host or --port") from error
    return listener


def _count(server: Server) -> dict[str, Any]:
    """Requests answered, by status."""
    counts: dict[str, Any] = {}
    for metric in server.metrics.requests.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                status = sample.labels["status"]
                counts[status] = counts.get(status, 0) + int(sample.value)
    return counts
