"""Vocabulary and docid table by Ray beside the plain path: the same bytes, what Ray costs, and workers that are killed.

Behind ``pixnar bench ray-build``. A corpus of generated docids in shards is built plainly, by Ray with one worker and
with more, and by Ray while workers are killed; every vocabulary file and every file of every table is compared with the
plain one's, byte by byte, and a difference is an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from pixnar.base.errors import PixnarError
from pixnar.cli.common import JsonFile, number, numbers, write_json
from pixnar.distributed import table as in_shards
from pixnar.distributed.cluster import Executor, connected
from pixnar.distributed.vocab import build_vocabulary
from pixnar.evaluation.latency import environment
from pixnar.table import build_table
from pixnar.vocab import Vocabulary
from pixnar.vocab.phrases import BuildOptions

from .generate import generate_docids
from .kill_workers import busy_workers, killing, processes, ray_workers

DOCIDS_PER_DOCUMENT = 5
_TABLE_WIDTH = 120
_LOOK_SECONDS = 0.05


@dataclasses.dataclass
class Way:
    """One way to build: seconds, best of some, and whether every byte was the plain one's.

    Processor seconds are those of all processes, Ray's own included; they tell more than the clock on a busy machine.
    Those of workers that were killed are lost, so there are none where workers were.
    """

    name: str
    workers: int
    start_seconds: float  # of Ray and its workers, once
    vocabulary_seconds: float
    vocabulary_cpu: float | None
    table_seconds: float
    table_cpu: float | None
    builds: int
    same_bytes: bool
    driver_mb: float = 0.0  # the most it held of its own, beyond what it had before
    worker_mb: float = 0.0  # the most that any worker held of its own while it had a job or after the last one
    kills: int = 0
    killed_during: dict[str, int] = dataclasses.field(default_factory=dict)


def run(
    docids: Annotated[int, number("Generated docids.")] = 300_000,
    size: Annotated[int, typer.Option(help="Vocabulary size.")] = 32_768,
    workers: Annotated[Sequence[int], numbers("Numbers of workers, separated by commas.")] = (1, 2, 4),
    kills: Annotated[int, typer.Option(help="Workers to kill in the middle of their jobs.", min=0)] = 20,
    shards: Annotated[int, typer.Option(help="Files of docids.", min=1)] = 8,
    repeats: Annotated[int, typer.Option(help="Builds of each kind; the best time counts.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Chooses docids, and when workers die.")] = 0,
    json_file: JsonFile = None,
) -> list[Way]:
    """Vocabulary and docid table by Ray beside the plain path: same bytes, time, workers that are killed.

    [bold]pixnar bench ray-build --docids 300000 --workers 1,2,4 --kills 20[/bold]
    """
    console = Console(width=_TABLE_WIDTH)
    ways: list[Way] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = write_shards(folder / "corpus", docids, shards, seed)
        options = BuildOptions(size)
        bench = _Bench(folder, corpus, options)
        ways.append(bench.plain(repeats))
        for count in workers:
            ways.append(bench.by_ray(count, repeats))
        if kills:
            # So that they are spread over the stages of a few builds rather than over the first.
            longest = max(way.vocabulary_seconds + way.table_seconds for way in ways)
            ways.append(bench.with_kills(2, kills, longest / 4, seed))
    facts = {"environment": environment("pixnar", "ray", "numpy"), "docids": docids, "shards": shards}
    write_json(json_file, facts | {"ways": [dataclasses.asdict(way) for way in ways]})
    console.print(_table(ways))
    return ways


def write_shards(folder: Path, docids: int, shards: int, seed: int = 0) -> Path:
    """A corpus of generated docids, `shards` files of them, five for each document."""
    (folder / "docids").mkdir(parents=True)
    documents = max(docids // DOCIDS_PER_DOCUMENT, 1)
    with open(folder / "corpus.jsonl", "w") as file:
        for number in range(documents):
            file.write(
                json.dumps({"_id": f"d{number}", "title": f"Document {number}", "text": "", "group": number % 97})
                + "\n"
            )
    files = [open(folder / "docids" / f"part-{shard:03}.jsonl", "w") for shard in range(shards)]  # noqa: SIM115
    for number, docid in enumerate(generate_docids(docids, seed)):
        row = {"_id": f"d{number * 7919 % documents}", "docid": docid}
        files[number * shards // docids].write(json.dumps(row, ensure_ascii=False) + "\n")
    for file in files:
        file.close()
    return folder


class _Bench:
    def __init__(self, folder: Path, corpus: Path, options: BuildOptions) -> None:
        self.folder, self.corpus, self.options = folder, corpus, options
        self.made = 0
        self.wanted: dict[str, bytes] = {}

    def plain(self, repeats: int) -> Way:
        from pixnar.corpus import docid_texts

        def vocabulary() -> Vocabulary:
            texts, _ = docid_texts([self.corpus])
            return Vocabulary.build(texts, self.options.size)

        return self._measured(
            "plain", 0, 0.0, repeats, vocabulary, lambda made, path: build_table(self.corpus, made, path)
        )

    def by_ray(self, workers: int, repeats: int) -> Way:
        start = time.perf_counter()
        with connected(workers) as executor:
            list(executor.run("starting", _import_all, [()] * workers))
            return self._with(executor, f"ray, {workers}", time.perf_counter() - start, repeats)

    def with_kills(self, workers: int, kills: int, pause: float, seed: int) -> Way:
        with connected(workers) as executor:
            list(executor.run("starting", _import_all, [()] * workers))
            with killing(kills, seed, pause=(0.0, pause)) as killer:
                way = self._with(executor, f"ray, {workers}, killed", 0.0, 1)
                while not killer.enough.is_set():
                    again = self._with(executor, way.name, 0.0, 1)
                    way.builds += 1
                    way.vocabulary_seconds = max(way.vocabulary_seconds, again.vocabulary_seconds)
                    way.table_seconds = max(way.table_seconds, again.table_seconds)
            way.vocabulary_cpu = way.table_cpu = None
            way.kills, way.killed_during = len(killer.kills), dict(Counter(killer.kills))
            return way

    def _with(self, executor: Executor, name: str, start: float, repeats: int) -> Way:
        def vocabulary() -> Vocabulary:
            return build_vocabulary([self.corpus], executor, self.folder, self.options)

        def table(made: Vocabulary, path: Path) -> Any:
            return in_shards.build_table(self.corpus, made, path, executor, self.folder)

        return self._measured(name, executor.workers, start, repeats, vocabulary, table)

    def _measured(
        self,
        name: str,
        workers: int,
        start: float,
        repeats: int,
        vocabulary: Callable[[], Vocabulary],
        table: Callable[[Vocabulary, Path], Any],
    ) -> Way:
        seconds = []
        memory = Memory(workers=workers > 0)
        for _ in range(repeats):
            self.made += 1
            path = self.folder / f"table-{self.made}"
            with memory.watched():
                began = _clocks(memory)
                made = vocabulary()
                middle = _clocks(memory)
                table(made, path)
                end = _clocks(memory)
            seconds.append((*began.until(middle), *middle.until(end)))
            self._compare(name, path)
        best, best_cpu, table_best, table_cpu = (round(min(times), 2) for times in zip(*seconds, strict=True))
        return Way(
            name,
            workers,
            round(start, 2),
            best,
            best_cpu,
            table_best,
            table_cpu,
            repeats,
            same_bytes=True,
            driver_mb=round(memory.driver_mb, 1),
            worker_mb=round(memory.worker_mb, 1),
        )

    def _compare(self, name: str, path: Path) -> None:
        # The vocabulary is one of the files of a table.
        files = {file.name: file.read_bytes() for file in sorted(path.iterdir())}
        self.wanted = self.wanted or files
        different = [file for file in self.wanted.keys() | files.keys() if self.wanted.get(file) != files.get(file)]
        if different:
            raise PixnarError(f"{name}: {', '.join(sorted(different))} differ from what the plain path makes")


class Memory:
    """The most memory of their own that this process and the busiest of its workers held, looked at now and then."""

    def __init__(self, *, workers: bool = True) -> None:
        self.workers = workers  # whether they are looked at
        self.driver_mb = self.worker_mb = 0.0
        self.seconds = 0.0  # of the processor, for looking

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look while the block runs."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what earlier builds left behind would be used again, unseen
        stop, before, spent = threading.Event(), own_mb(os.getpid()), self.seconds

        def note(workers: Iterable[int]) -> None:
            self.driver_mb = max(self.driver_mb, own_mb(os.getpid()) - before)
            self.worker_mb = max([self.worker_mb, *map(own_mb, workers)])
            self.seconds = spent + time.thread_time()

        def look() -> None:
            while not stop.wait(_LOOK_SECONDS):
                note(busy_workers() if self.workers else ())
            note(ray_workers() if self.workers else ())  # a short build may end before a look finds a worker busy

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def own_mb(pid: int) -> float:
    """Memory that a process shares with no file and no other process; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def _import_all() -> None:
    """What a worker needs to have read before its first job."""
    import pixnar.distributed.table
    import pixnar.distributed.vocab  # noqa: F401


class _Clocks(NamedTuple):
    """The clock, the processor's seconds of each process, and those spent on watching them."""

    clock: float
    spent: dict[int, float]
    watching: float

    def until(self, later: _Clocks) -> tuple[float, float]:
        """Seconds by the clock and of processors from here on; a process that has ended since does not count."""
        spent = sum(seconds - self.spent.get(pid, 0.0) for pid, seconds in later.spent.items())
        return later.clock - self.clock, spent - (later.watching - self.watching)


def _clocks(memory: Memory) -> _Clocks:
    return _Clocks(time.perf_counter(), processes(), memory.seconds)


def _beside(seconds: float | None, plain: float | None) -> tuple[str, str]:
    return ("", "") if seconds is None or not plain else (f"{seconds:.1f}", f"{seconds / plain:.2f}")


def _table(ways: list[Way]) -> Table:
    heads = ("way", "start s", "vocab s", "CPU s", "x", "table s", "CPU s", "x", "driver MB", "worker MB")
    table = Table(*heads, "builds", "kills", "bytes")
    plain = ways[0]
    for way in ways:
        table.add_row(
            way.name,
            f"{way.start_seconds:.1f}",
            f"{way.vocabulary_seconds:.1f}",
            *_beside(way.vocabulary_cpu, plain.vocabulary_cpu),
            f"{way.table_seconds:.1f}",
            *_beside(way.table_cpu, plain.table_cpu),
            f"{way.driver_mb:.0f}",
            f"{way.worker_mb:.0f}" if way.worker_mb else "",
            str(way.builds),
            str(way.kills),
            "same" if way.same_bytes else "different",
        )
    return table
