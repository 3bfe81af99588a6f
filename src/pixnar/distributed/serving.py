"""An index behind Ray Serve: replicas of the HTTP server, or a front before the parts of an index.

The routes, limits and answers are those of `pixnar.serve`: each replica runs its app, with a queue of its own. Of an
index in parts, the front encodes and scores a query once and asks a replica of every part. A part whose replica dies is
asked again, and another replica answers the same: nobody notices but by the time it took. All of them are of the cut
that was there at the start: a replica that finds another one does not start, and what needs it is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.base.storage import in_memory
from pixnar.distributed.cluster import connected
from pixnar.distributed.sharded import DetailedHit, HitDetails, Named, Sharded, ShardRequest, ShardResponse, ShardServer
from pixnar.distributed.shards import Shards, is_shards
from pixnar.index import Index
from pixnar.runtime import CachedEncoder
from pixnar.search.ranker import Stopwatch
from pixnar.search.spelling import Neighbour
from pixnar.serve import LiveIndex, Settings, make_app, make_server
from pixnar.serve.handlers import Job, Watch, to_json, unanswerable
from pixnar.serve.queue import Limits, RefusedError
from pixnar.serve.schemas import Addition
from pixnar.serve.server import Backend, Log

NAME = "pixnar"
_LOOK = 0.2  # seconds between looks whether to stop
_PAUSE, _LONGEST = 0.05, 1.0  # seconds before a call to a part whose replica died is made again; each time twice that
_MORE = 64  # requests that a replica takes in beyond those that may wait: it turns them away itself
_SHARE = 0.8  # of the time of a request, after which a part is given up: who asked is told so while there still is time
_WARM_UPS = 5
_START = 3600.0  # seconds until all replicas must be up: reading a large part from a slow disk takes minutes


@dataclass(frozen=True)
class Cluster:
    """How many replicas, and where; without an address a Ray is started here."""

    replicas: int = 1
    address: str | None = None


def serve_on_ray(folder: Path, settings: Settings, cluster: Cluster) -> None:
    """Serve an index, or the parts of one, until the process is told to end."""
    stop = threading.Event()
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda number, _: stop.set())
    # Ray would put handlers of its own in place of these, which end in a crash: in the main thread, and natively.
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_serve, folder, settings, cluster, stop).result()


def _serve(folder: Path, settings: Settings, cluster: Cluster, stop: threading.Event) -> None:
    log = Log()
    with deployed(folder, settings, cluster, stop) as address:
        if not stop.is_set():
            log("serving", index=str(folder), address=address, replicas=cluster.replicas, ray=True)
        stop.wait()
        log("stopping")
    log("stopped")


class deployed:  # noqa: N801 - it is used as a function
    """Deploy an index, or the parts of one; gives the address, and takes the deployment down at the end.

    With `stop` set it does not wait until all replicas are up.
    """

    def __init__(self, folder: Path, settings: Settings, cluster: Cluster, stop: threading.Event | None = None) -> None:
        self._folder, self._settings, self._cluster = folder, settings, cluster
        self._stop, self._begun = stop or threading.Event(), False
        self._shards = Shards.open(folder) if is_shards(folder) else None
        parts = self._shards.parts if self._shards else []
        if parts and (settings.keys or settings.device):
            what = "live changes" if settings.keys else "a device"
            raise PixnarError(f"{what} with an index in parts: not offered; serve the whole index for that")
        Index.load(parts[0] if parts else folder, sources=settings.sources)  # what is wrong with it is told here
        if self._shards:
            for number in range(len(parts)):
                self._shards.table(number)
        self._parts = len(parts)
        own = cluster.address is None  # else Ray listens on another machine
        self._port = _free_port(settings.host, settings.port) if own or not settings.port else settings.port
        self._needed = cluster.replicas * (1 + self._parts)
        self._ray = connected(max(2, self._needed), cluster.address)

    def __enter__(self) -> str:
        self._ray.__enter__()
        try:
            from ray import serve

            logging.getLogger("ray.serve").setLevel(logging.ERROR)
            self._check_room()
            if not self._stop.is_set():
                self._start(serve)
        except BaseException:
            self.__exit__()
            raise
        host = self._settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}"

    def __exit__(self, *_: object) -> None:
        from ray import serve

        try:
            if not self._begun:
                return
            if self._cluster.address is None:
                serve.shutdown()  # type: ignore[no-untyped-call]
            else:  # others may serve there, too
                serve.delete(NAME)
        finally:
            self._ray.__exit__(None, None, None)

    def _check_room(self) -> None:
        """Ray itself would wait for more processors, without a word."""
        import ray

        there = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        if there < self._needed:
            of = f" of a front and {self._parts} parts" if self._parts else ""
            raise PixnarError(
                f"--replicas {self._cluster.replicas}{of} needs {self._needed} processors, Ray has {there}: "
                "add machines, or give fewer replicas or parts"
            )

    def _start(self, serve: Any) -> None:
        """Start all replicas, and wait until they are up or nobody wants them any more."""
        logs = {"log_level": "ERROR", "enable_access_log": False}
        http = {"host": self._settings.host, "port": self._port}
        self._begun = True
        try:
            serve.start(http_options=http, proxy_location="HeadOnly", logging_config=logs)
            target = serve.RunTarget(self._application(), NAME, "/", logs)
            serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)
            until = time.monotonic() + _START
            while not self._stop.wait(_LOOK):
                application = serve.status().applications.get(NAME)
                if application and application.status == "RUNNING":
                    return
                if application and application.status == "DEPLOY_FAILED":
                    raise RuntimeError(application.message)
                if time.monotonic() > until:
                    raise TimeoutError(f"not all replicas are up after {_START:.0f} s: see ray status")
        except (RuntimeError, TimeoutError) as error:
            why = _why_not(serve) or str(error).strip().splitlines()[-1]
            raise PixnarError(f"cannot serve {self._folder} with Ray: {why}") from error

    def _application(self) -> Any:
        from ray import serve

        folder, settings, limits = self._folder.resolve(), self._settings, self._settings.limits
        options: dict[str, Any] = {
            "num_replicas": self._cluster.replicas,
            "ray_actor_options": {"num_cpus": 1},
            "health_check_period_s": 1.0,
            "graceful_shutdown_timeout_s": 5.0,
        }
        most = limits.waiting + settings.workers + _MORE
        ingress: Any = serve.ingress()
        front = serve.deployment(**options, name="front", max_ongoing_requests=most)(ingress(_Front))
        if self._shards is None:
            return front.bind(str(folder), settings, [])
        handles = []
        for number in range(self._parts):
            replica = serve.deployment(**options, name=f"part-{number:03}", max_ongoing_requests=most)(_ShardReplica)
            handles.append(replica.bind(str(folder), self._shards.cut, number, settings))
        return front.bind(str(folder), settings, handles, self._shards.cut)


class _Front:
    """A replica that speaks HTTP: the app of a plain server before the whole index, or before its parts."""

    async def __init__(  # type: ignore[misc]  # Ray Serve waits for it
        self, folder: str, settings: Settings, parts: list[Any], cut: str = ""
    ) -> None:
        loop = asyncio.get_running_loop()  # which must be free while the first queries go to the parts
        self._app = await loop.run_in_executor(None, self._made, folder, settings, parts, cut)

    @staticmethod
    def _made(folder: str, settings: Settings, parts: list[Any], cut: str) -> Any:
        log = Log()
        backend: Backend
        if parts:
            backend = ShardedBackend(Path(folder), cut, settings, parts)
        else:
            backend = LiveIndex(
                Path(folder), log, threads=1, cache=settings.cache, sources=settings.sources, device=settings.device
            )
            if settings.look_seconds:
                backend.watch(settings.look_seconds)
        server = make_server(
            backend, settings.limits, keys=settings.keys, workers=settings.workers, batch=settings.batch or 1, log=log
        )
        return make_app(server, log_queries=settings.log_queries, access_log=settings.access_log)

    def __serve_build_asgi_app__(self) -> Any:
        return self._app

    async def process(self) -> int:
        return os.getpid()


class _ShardReplica:
    """A replica of one part of a cut."""

    def __init__(self, folder: str, cut: str, number: int, settings: Settings) -> None:
        shards = Shards.open(folder, cut)
        self._part = ShardServer.open(shards, number, sources=settings.sources, mapped=False, warm_up=True)
        self._pool = ThreadPoolExecutor(max(1, settings.workers))
        if settings.look_seconds:
            threading.Thread(target=self._refresh, args=(settings.look_seconds,), daemon=True).start()

    async def answer(self, request: ShardRequest) -> ShardResponse:
        return await self._run(self._part.answer, request)  # type: ignore[no-any-return]

    async def details(self, hits: Named) -> list[HitDetails]:
        return await self._run(self._part.details, hits)  # type: ignore[no-any-return]

    async def lookup(self, words: list[str]) -> list[list[Neighbour] | None]:
        return await self._run(self._part.lookup, words)  # type: ignore[no-any-return]

    async def facts(self) -> dict[str, Any]:
        table = self._part.table
        counts = {"documents": table.documents, "docids": table.pairs, "process": os.getpid()}
        return counts | {"keys": sorted(table.snapshot().new_keys)}

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def _refresh(self, every: float) -> None:
        """Take in what others change on disk, but no other cut; what cannot be read is tried again at the next look."""
        while True:
            time.sleep(every)
            try:
                with in_memory():
                    changed = self._part.table.refresh()
                if changed:
                    self._part.ranker.warm_up()
            except (PixnarError, OSError):
                continue


class RayShardServers:
    """Shard servers behind handles of Ray Serve; a call that a replica did not live to answer is made again.

    `timeout` is how long one may take, in seconds.
    """

    def __init__(self, handles: Sequence[Any], timeout: float) -> None:
        self._handles, self.timeout = list(handles), timeout

    def answers(self, requests: Sequence[ShardRequest]) -> list[ShardResponse]:
        """See `ShardServers`."""
        return self._all("answer", [(request,) for request in requests])

    def details(self, hits: Sequence[Named]) -> list[list[HitDetails]]:
        """See `ShardServers`; a part that has none of the documents is not asked."""
        return self._all("details", [(own,) if own else None for own in hits], [])

    def lookup(self, words: Sequence[str]) -> list[list[list[Neighbour] | None]]:
        """See `ShardServers`. If a part does not answer, the lexicon alone corrects: other queries must not fail."""
        try:
            return self._all("lookup", [(list(words),) for _ in self._handles])
        except RefusedError:
            return [[[] for _ in words] for _ in self._handles]

    def facts(self) -> list[dict[str, Any]]:
        """What each part says of itself."""
        return self._all("facts", [() for _ in self._handles])

    def _all(self, method: str, arguments: Sequence[tuple[Any, ...] | None], nothing: Any = None) -> list[Any]:
        """One call to each part, all at the same time."""
        until = time.monotonic() + self.timeout
        calls = [
            None if given is None else getattr(handle, method).remote(*given)
            for handle, given in zip(self._handles, arguments, strict=True)
        ]
        return [
            nothing if call is None or given is None else self._result(number, method, given, call, until)
            for number, (call, given) in enumerate(zip(calls, arguments, strict=True))
        ]

    def _result(self, number: int, method: str, given: tuple[Any, ...], call: Any, until: float) -> Any:
        import ray
        from ray.serve.exceptions import RayServeException

        pause, died = _PAUSE, (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError, RayServeException)
        while time.monotonic() < until:
            try:
                if call is None:
                    call = getattr(self._handles[number], method).remote(*given)
                return call.result(timeout_s=max(0.1, until - time.monotonic()))
            except ray.exceptions.RayTaskError as error:
                cause = getattr(error, "cause", None)
                raise cause if isinstance(cause, PixnarError) else error from None
            except died:
                call = None
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)
            except TimeoutError:
                break
        raise RefusedError(503, f"part {number} of the index does not answer: ask again in a moment", 1)


class ShardedBackend:
    """The parts of a cut, held by others; the encoder and the phrase rows are here."""

    def __init__(self, folder: Path, cut: str, settings: Settings, handles: Sequence[Any]) -> None:
        self.folder = folder
        self.listeners: list[Callable[[str], None]] = []
        self._parts = RayShardServers(handles, _START)
        self.index = Sharded.open(folder, self._parts, sources=settings.sources, threads=1, cut=cut)
        self._parts.facts()  # the parts may take longer to open than a request may take
        self.seconds = 0.05
        self._warm_up()
        self._parts.timeout = _SHARE * settings.limits.timeout_seconds
        if settings.cache:
            searcher = self.index.index.searcher
            searcher.encoder = CachedEncoder(searcher.encoder, settings.cache)

    @property
    def name(self) -> str:
        """See `Backend`."""
        return self.folder.resolve().name

    def answers(self, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
        """See `Backend`."""
        refused = unanswerable(self.index.index, jobs)
        spelling = [False if id(job) in refused else job.options.spelling for job in jobs]
        lap = Stopwatch()
        queries = self.index.index.searcher.prepare([job.text for job in jobs], spelling, lap)
        done: list[bytes | Exception] = []
        for job, query in zip(jobs, queries, strict=True):
            try:
                if id(job) in refused:
                    raise refused[id(job)]
                if job.explain:
                    raise RefusedError(422, "explain: not offered by an index in parts; ask one that serves the whole")
                hits = self.index.answered(query, job.options, lap)
                asked = {"query": job.text, "corrected": query.text if query.original else None}
                done.append(to_json({**asked, "hits": [*map(self._row, hits)], "explanation": None}))
            except Exception as error:  # one query's failure is not that of those it is answered with
                done.append(error)
        if watch is not None and jobs:
            for stage, microseconds in lap.spent.items():
                watch(stage, microseconds / 1e6 / len(jobs))
        return done

    def facts(self) -> dict[str, Any]:
        """See `Backend`."""
        index, parts = self.index.index, self._parts.facts()
        fusion = index.ranker.fusion
        return {
            "documents": sum(part["documents"] for part in parts),
            "docids": sum(part["docids"] for part in parts),
            "vocabulary": index.table.vocab_size,
            "slots": index.ranker.scorer.slots,
            "sources": ["docids"] if fusion is None else list(fusion.weights),
            "keys": sorted({*self.index.shards.keys}.union(*(part["keys"] for part in parts))),
        }

    def add(self, addition: Addition, limits: Limits) -> None:
        """Not offered."""
        raise RefusedError(403, "an index in parts is not changed over HTTP: change the parts on disk")

    def remove(self, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
        """Not offered."""
        raise RefusedError(403, "an index in parts is not changed over HTTP: change the parts on disk")

    def close(self) -> None:
        """See `Backend`."""

    def _row(self, detailed: DetailedHit) -> dict[str, Any]:
        table, hit = self.index.index.table, detailed.hit
        tokens = [table.vocabulary.token(v) for v in table.encode(hit.docid)] if hit.docid else []
        return {**hit.facts(), "tokens": tokens, "title": detailed.title, "metadata": detailed.metadata}

    def _warm_up(self) -> None:
        took = []
        for i in range(_WARM_UPS):
            began = time.perf_counter()
            self.index.search(f"warm up {i}", 10)
            took.append(time.perf_counter() - began)
        self.seconds = sorted(took)[_WARM_UPS // 2]


def _why_not(serve: Any) -> str:
    """What the deployments say of themselves that did not start: the last line of their first complaint."""
    application = serve.status().applications.get(NAME)
    for deployment in application.deployments.values() if application else ():
        lines = [line for line in deployment.message.splitlines() if line.strip()]
        if deployment.status != "HEALTHY" and lines:
            return str(lines[-1])
    return ""


def _free_port(host: str, port: int) -> int:
    """The port, or any for 0, if it is free: Ray would find out late, and say so at length."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            reason = error.strerror
            raise PixnarError(f"cannot serve at {host}:{port}: {reason}; choose another --host or --port") from error
        return int(listener.getsockname()[1])
