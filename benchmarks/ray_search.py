"""What Ray costs and what it survives: batch search and serving with and without it, and workers that are killed.

Queries of a corpus are searched in the plain way on one thread, then by one and two workers of Ray Data; files must be
the same bytes. The index is served plainly, by one replica of Ray Serve, and in two parts; a client asks one query at a
time. Then workers of a batch search are killed at random moments, until so many have been. Any difference is an error.

    python -m pixnar.benchmarks.ray_search demo/index demo/corpus --json build/ray_search.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pixnar.benchmarks.http_client import Connection, get
from pixnar.benchmarks.kill_workers import processes
from pixnar.benchmarks.serve_process import ServeProcess, spread

from pixnar.base.storage import atomic_write
from pixnar.corpus import open_corpus
from pixnar.distributed.batch import BatchOptions, search_file
from pixnar.distributed.batch_ray import RayWorkers
from pixnar.distributed.cluster import connected
from pixnar.distributed.sharded import Sharded
from pixnar.distributed.shards import split
from pixnar.evaluation.latency import environment
from pixnar.index import Index


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("index", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    texts = [query.text for query in open_corpus(given.corpus).queries()]
    texts = (texts * (1 + given.queries // len(texts)))[: given.queries]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        rows = [json.dumps({"_id": f"q{i}", "text": text}) + "\n" for i, text in enumerate(texts)]
        (home / "queries.jsonl").write_text("".join(rows))
        found: dict[str, Any] = {
            "command": f"python -m pixnar.benchmarks.ray_search {given.index} {given.corpus} --queries {given.queries} "
            f"--requests {given.requests} --kills {given.kills}",
            "environment": environment(),
            "load_average": os.getloadavg(),
        }
        measures: list[tuple[str, Callable[[], dict[str, Any]]]] = [
            ("parts", lambda: cut(given.index, home, texts[:100])),
            ("serve", lambda: serving(given.index, home, texts, given.requests)),
            ("kills", lambda: kills(given.index, home, given.kills)),
            ("batch", lambda: batches(given.index, home, given.queries)),
        ]
        for name, measure in measures:
            found[name] = measure()
            if given.json:
                given.json.parent.mkdir(exist_ok=True)
                with atomic_write(given.json) as file:
                    file.write(json.dumps(found, indent=1).encode() + b"\n")
    print(json.dumps(found, indent=1))
    if wrong := different(found):
        raise SystemExit(f"not the same as the plain way: {', '.join(wrong)}")


def different(found: dict[str, Any]) -> list[str]:
    """The measures where something came out other than in the plain way."""
    same = {
        "parts": found["parts"]["identical"] == found["parts"]["queries"],
        "serve": found["serve"]["identical"],
        "kills": found["kills"]["same_bytes"] == found["kills"]["runs"],
        "batch": found["batch"]["same_bytes"],
    }
    return [name for name, is_same in same.items() if not is_same]


class Processor:
    """Processor seconds of this process and all below it; those that have ended count as they were last looked at.

    They tell more than the clock on a busy machine.
    """

    def __init__(self) -> None:
        self._seen = processes()
        self._before = sum(self._seen.values())

    def look(self, *_: int) -> None:
        """Note what each has taken; workers are gone when their work is done."""
        self._seen |= processes()

    def seconds(self) -> float:
        """What was taken since the beginning."""
        self.look()
        return float(sum(self._seen.values()) - self._before)


def cut(index: Path, home: Path, texts: list[str]) -> dict[str, Any]:
    """Cut the index in two and compare hits, in one process."""
    began = time.perf_counter()
    split(index, home / "shards", 2)
    seconds = time.perf_counter() - began
    whole, parts = Index.load(index, threads=1), Sharded.open(home / "shards", threads=1)
    same = sum(whole.search(text, 10) == parts.search(text, 10) for text in texts)
    return {"seconds_to_cut": round(seconds, 2), "queries": len(texts), "identical": same}


def batches(index: Path, home: Path, queries: int) -> dict[str, Any]:
    """Queries a second; opening the index is part of it, and starting actors; starting Ray is told apart.

    Processor seconds are those of all processes, Ray's own included.
    """
    found: dict[str, Any] = {}

    def run(name: str, workers: int) -> None:
        taken, began = Processor(), time.perf_counter()
        out, made = home / f"{name}.parquet", RayWorkers(workers, watch=taken.look) if workers else None
        search_file(index, home / "queries.jsonl", out, BatchOptions(batch=64), workers=made, threads=1)
        seconds = time.perf_counter() - began
        found[name] = {
            "seconds": round(seconds, 2),
            "queries_per_second": round(queries / seconds, 1),
            "cpu_seconds": round(taken.seconds(), 2),
        }

    run("plain", 0)
    began = time.perf_counter()
    with connected(2):
        found["seconds_to_start_ray"] = round(time.perf_counter() - began, 2)
        run("ray_1_worker", 1)
        run("ray_2_workers", 2)
    whole = (home / "plain.parquet").read_bytes()
    found["same_bytes"] = all(
        (home / f"ray_{name}.parquet").read_bytes() == whole for name in ("1_worker", "2_workers")
    )
    return found


def kills(index: Path, home: Path, wanted: int) -> dict[str, Any]:
    """Kill workers a moment after they finished a piece, when they are at the next."""
    chance, killed = random.Random(0), 0
    runs = same = 0
    search_file(index, home / "queries.jsonl", home / "small.parquet", BatchOptions(batch=32), threads=1)
    expected = (home / "small.parquet").read_bytes()
    dead: set[int] = set()

    def watch(number: int, process: int) -> None:
        nonlocal killed
        if process not in dead and killed < wanted and chance.random() < 0.5:
            time.sleep(chance.random() * 0.2)
            dead.add(process)
            with suppress(ProcessLookupError):  # it had no more to do
                os.kill(process, signal.SIGKILL)
                killed += 1

    with connected(2):
        while killed < wanted:
            search_file(
                index,
                home / "queries.jsonl",
                home / "again.parquet",
                BatchOptions(batch=32),
                workers=RayWorkers(2, watch=watch),
                overwrite=True,
            )
            runs += 1
            same += (home / "again.parquet").read_bytes() == expected
    return {"killed": killed, "runs": runs, "same_bytes": same}


def serving(index: Path, home: Path, texts: list[str], requests: int) -> dict[str, Any]:
    """One query at a time over HTTP: milliseconds until the answer, and whether all answers are the same."""
    found: dict[str, Any] = {}
    answers: dict[str, list[Any]] = {}
    for name, folder, options in (
        ("plain", index, ()),
        ("ray_replica", index, ("--ray", "--replicas", "1")),
        ("ray_2_parts", home / "shards", ("--ray", "--replicas", "1")),
    ):
        began = time.perf_counter()
        with _served(folder, *options) as server:
            started = time.perf_counter() - began
            took, answers[name] = asyncio.run(_asked(server.host, server.port, texts[:requests]))
        found[name] = {"seconds_to_start": round(started, 1), "milliseconds": spread(took)}
    found["identical"] = all(one == answers["plain"] for one in answers.values())
    return found


@contextmanager
def _served(folder: Path, *options: str) -> Iterator[ServeProcess]:
    plain = ("--workers", "1", "--cache", "0", "--no-access-log", "--timeout", "60")
    with ServeProcess(folder, *plain, *options, patience=300.0) as server:
        yield server


async def _asked(host: str, port: int, texts: list[str]) -> tuple[list[float], list[Any]]:
    connection = Connection(host, port)
    took, answers = [], []
    for text in texts[:20]:
        await connection.ask(get("/search", q=text, k=10))
    for text in texts:
        reply = await connection.ask(get("/search", q=text, k=10))
        if reply.status != 200:
            raise RuntimeError(f"status {reply.status}: {reply.body!r}")
        took.append(reply.seconds)
        answers.append(reply.json()["results"])
    connection.close()
    return took, answers


if __name__ == "__main__":
    main()
