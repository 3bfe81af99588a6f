"""Requests a second over HTTP, and what happens when twice as many come as the machine can answer.

Behind ``pixnar bench serve``. The server is a process of its own, and so is whoever asks: this one. All that it answers
is compared with what the library says.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pixnar.benchmarks.http_client import Connection, Reply, get, post
from pixnar.benchmarks.serve_process import ServeProcess, spread
from rich.console import Console

from pixnar.cli.common import JsonFile, write_json
from pixnar.corpus import open_corpus
from pixnar.evaluation.latency import environment
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.search import Hit

CLIENTS = (1, 4, 16)
_UNHURRIED = "60000"  # milliseconds a query may wait where throughput is measured
_SLACK = 1e-5  # of scores, which went through JSON


class Mix:
    """Requests of several kinds, and what the library answers to each."""

    def __init__(self, index: Index, texts: Sequence[str], seed: int = 0) -> None:
        chance = random.Random(seed)
        self.requests: list[tuple[bytes, list[list[Hit]]]] = []
        for text in texts:
            k = chance.choice((1, 10, 10, 10, 50))
            kind = chance.random()
            if kind < 0.6:
                self.requests.append((get("/search", q=text, k=k), [index.search(text, k)]))
            elif kind < 0.8:
                self.requests.append((post("/search", {"query": text, "k": k}), [index.search(text, k)]))
            elif kind < 0.9:
                some = chance.sample(list(texts), 3)
                self.requests.append((post("/search", {"query": some, "k": k}), index.search_batch(some, k)))
            elif kind < 0.97:
                best = [hit.id for hit in index.search(text, 2)]
                body = {"query": text, "k": k, "forbid": best}
                self.requests.append((post("/search", body), [index.search(text, k, forbid=best)]))
            else:
                body = {"query": text, "k": k, "explain": True}
                self.requests.append((post("/search", body), [index.search(text, k)]))


def right(reply: Reply, wanted: list[list[Hit]]) -> bool:
    """Whether an answer is the library's own."""
    results = reply.json()["results"]
    found = [[(hit["doc_id"], hit["score"], hit["docid"]) for hit in result["hits"]] for result in results]
    return len(found) == len(wanted) and all(
        len(mine) == len(theirs)
        and all(
            a[0] == b.id and abs(a[1] - b.score) <= _SLACK * max(1, abs(b.score)) and a[2] == b.docid
            for a, b in zip(mine, theirs, strict=True)
        )
        for mine, theirs in zip(found, wanted, strict=True)
    )


async def closed(server: ServeProcess, requests: Sequence[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """So many clients that each ask again as soon as they are answered."""
    until = time.perf_counter() + seconds
    statuses: Counter[int] = Counter()
    taken: list[float] = []

    async def client(number: int) -> None:
        connection, place = Connection(server.host, server.port), number
        while time.perf_counter() < until:
            reply = await connection.ask(requests[place % len(requests)])
            place += clients
            statuses[reply.status] += 1
            if reply.status == 200:
                taken.append(reply.seconds)
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client(i) for i in range(clients)))
    rate = len(taken) / (time.perf_counter() - began)
    return {"clients": clients, "per_second": round(rate, 1), "ms": spread(taken), "statuses": dict(statuses)}


async def overloaded(
    server: ServeProcess, mix: Mix, per_second: float, seconds: float, seed: int = 0
) -> dict[str, Any]:
    """Requests that come when they come, however many wait; each answer is checked."""
    chance = random.Random(seed)
    free: list[Connection] = []
    statuses: Counter[str] = Counter()
    taken: list[float] = []
    wrong = 0
    running: set[asyncio.Task[None]] = set()
    memory: list[float] = []

    async def one() -> None:
        nonlocal wrong
        request, wanted = chance.choice(mix.requests)
        connection = free.pop() if free else Connection(server.host, server.port)
        try:
            reply = await connection.ask(request)
        except (OSError, EOFError) as error:
            statuses[type(error).__name__] += 1
            return
        free.append(connection)
        statuses[str(reply.status)] += 1
        if reply.status == 200:
            taken.append(reply.seconds)
            wrong += not right(reply, wanted)

    began = time.perf_counter()
    due, last = began, began
    while (now := time.perf_counter()) < began + seconds:
        if now - last > 1:
            memory.append(server.resident_mb())
            last = now
        while due <= now:
            due += chance.expovariate(per_second)
            task = asyncio.create_task(one())
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    await asyncio.gather(*running)
    for connection in free:
        connection.close()
    spent = time.perf_counter() - began
    tenth = max(1, len(memory) // 10)
    return {
        "seconds": round(spent, 1),
        "offered_per_second": round(sum(statuses.values()) / spent, 1),
        "answered_per_second": round(len(taken) / spent, 1),
        "statuses": dict(statuses),
        "ms": spread(taken),
        "wrong": wrong,
        "memory_mb": [round(sum(part) / len(part), 1) for part in (memory[:tenth], memory[-tenth:]) if part],
    }


def run(
    index: Annotated[Path, typer.Argument(help="Index to serve.")],
    corpus: Annotated[str, typer.Argument(help="Its corpus, with a dev split.")],
    seconds: Annotated[float, typer.Option(help="Seconds for each number of clients.", min=0.1)] = 10.0,
    soak: Annotated[float, typer.Option(help="Seconds of twice what the machine can hold; 0 = none.", min=0)] = 30.0,
    queries: Annotated[int, typer.Option(help="Dev queries that are asked again and again.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Of the order of requests.", min=0)] = 0,
    json_file: JsonFile = None,
) -> dict[str, Any]:
    """Requests over HTTP: how many a second at 1, 4 and 16 clients, and what an overload does.

    [bold]pixnar bench serve INDEX CORPUS --soak 600 --json serve.json[/bold]
    """
    console = Console(highlight=False)
    texts = read_queries(open_corpus(corpus), "dev", queries).texts
    mix = Mix(Index.load(index, threads=1, warm_up=True), texts, seed)
    plain = [get("/search", q=text, k=10) for text in texts]
    found: dict[str, Any] = {"environment": environment(), "rounds": []}
    for label, cache in (("with the encoder", "0"), ("vectors remembered", str(10 * queries))):
        with ServeProcess(index, "--no-access-log", "--wait-ms", _UNHURRIED, "--cache", cache) as server:
            asyncio.run(closed(server, plain, 4, min(seconds, 3.0 if cache == "0" else 10.0)))
            for clients in CLIENTS:
                told = asyncio.run(closed(server, plain, clients, seconds))
                found["rounds"].append({"encoder": label, **told})
                console.print(f"{label}, {clients} clients: {told['per_second']} a second, {told['ms']} ms")
    if soak:
        found["soak"] = _soak(console, index, mix, seconds, soak)
    write_json(json_file, found)
    return found


def _soak(console: Console, folder: Path, mix: Mix, seconds: float, soak: float) -> dict[str, Any]:
    """Twice the machine's capacity, with the limits that a server has by itself."""
    requests = [request for request, _ in mix.requests]
    with ServeProcess(folder, "--no-access-log", "--cache", "0") as server:
        asyncio.run(closed(server, requests, 2, min(3.0, seconds)))
        quiet = asyncio.run(closed(server, requests, 1, seconds))
        busy = asyncio.run(closed(server, requests, 4, seconds))
        told = asyncio.run(overloaded(server, mix, 2 * busy["per_second"], soak))
        after = asyncio.run(closed(server, requests, 1, seconds))
        code = server.stop(signal.SIGTERM)
        errors = server.events("error") + server.events("text")
    told |= {
        "unloaded_ms": quiet["ms"],
        "unloaded_after_ms": after["ms"],
        "capacity_per_second": busy["per_second"],
        "p99_ratio": round(told["ms"]["p99"] / quiet["ms"]["p99"], 2),
        "exit": code,
        "errors": errors[:3],
    }
    console.print(
        f"offered {told['offered_per_second']} a second for {told['seconds']} s: {told['statuses']}, "
        f"{told['wrong']} wrong, {told['ms']} ms, unloaded {quiet['ms']} ms, memory {told['memory_mb']} MB"
    )
    return told
