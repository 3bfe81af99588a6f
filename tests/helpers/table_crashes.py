"""Processes that work on a table and are killed; run as a program, so that forks have no threads of a test run.

The parent imports everything once; each child is a fork of it. A child tells through a pipe what it begins and what it
has done, so that the parent knows what the table must hold: all that was done, and, of what was under way, all or
nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from pixnar.base.errors import PixnarError
from pixnar.corpus import Document
from pixnar.table import DocidTable, build_table
from pixnar.table.journal import Change
from tests.helpers.tables import (
    DOCUMENTS,
    PAIRS,
    TEXTS,
    Content,
    Model,
    content,
    tokens_of,
    vocabulary,
    write_small_corpus,
)

IDS = [*(document.doc_id for document in DOCUMENTS), *(f"n{i}" for i in range(6))]
_EVENTS = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.rmdir", "os.chmod", "fcntl.flock"}
_COMPACT, _BUILD = b"compact", b"build"
_REBUILT = (("d1", "city break"), ("é4", "Rome"))


def fork(work: Callable[[int], None]) -> tuple[int, int]:
    """Start a child; the answer is its process id and the end of the pipe it writes to."""
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    try:
        os.close(reads)
        work(writes)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def ended(child: int, reads: int) -> tuple[bool, list[bytes]]:
    """Wait for a child; whether it was killed, and the lines it wrote."""
    with open(reads, "rb") as pipe:
        lines = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or status == 0, f"the child ended with {status}"
    return killed, lines


def random_change(rng: random.Random) -> Change:
    def pairs(most: int) -> list[tuple[str, str]]:
        return [(rng.choice(IDS), rng.choice(TEXTS)) for _ in range(rng.randint(0, most))]

    add = pairs(4)
    return Change(
        add=[(doc_id, tokens_of(text)) for doc_id, text in add],
        spellings=[text.upper() if rng.random() < 0.5 else text for _, text in add],
        remove_documents=rng.sample(IDS, rng.randint(0, 1)),
        remove_docids=[tokens_of(rng.choice(TEXTS)) for _ in range(rng.randint(0, 1))],
        remove_pairs=[(doc_id, tokens_of(text)) for doc_id, text in pairs(2)],
        documents=[Document(rng.choice(IDS), "Title", "", {"n": rng.random()})] if rng.random() < 0.3 else [],
    )


def arguments(change: Change) -> dict[str, Any]:
    return asdict(change) | {"documents": change.documents}


def changed(model: Model, line: bytes) -> Model:
    if line == _BUILD:
        return Model(_REBUILT)
    after = model.copy()
    if line != _COMPACT:
        after.change(**arguments(Change.from_bytes(line)))
    return after


def look(path: Path) -> Content:
    """What a table holds, when every byte of it is sound."""
    return content(DocidTable.check(path), IDS)


def nothing_left_over(path: Path) -> None:
    names = sorted(name for name in os.listdir(path) if name != "lock")
    stems = [name.split("-")[0] for name in names]
    compacted = ["difference"] if "difference" in stems else []  # nothing may have changed
    assert stems == ["changes", *compacted, "docids", "documents", "spellings", "table.pixnar", "vocabulary"], names


def at_random(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Changes, compactions and builds in place of what is there, killed after some milliseconds."""
    rng = random.Random(seed)
    path, other = folder / "table", write_small_corpus(folder / "other", _REBUILT)
    build_table(write_small_corpus(folder / "corpus"), vocabulary(), path, threads=1)
    model = Model()
    done = 0
    under_way = {"nothing": 0, "change": 0, "compact": 0, "build": 0}
    outcomes = {"taken": 0, "lost": 0}
    for _ in range(kills):
        child_seed, compacts = rng.random(), rng.choice([0.05, 0.5])

        def work(pipe: int, child_seed: float = child_seed, compacts: float = compacts) -> None:
            own = random.Random(child_seed)
            table = DocidTable.open(path)
            os.write(pipe, b"ready\n")
            while True:
                if own.random() < compacts:
                    os.write(pipe, _COMPACT + b"\n")
                    table.compact(threads=1)
                elif own.random() < 0.1:
                    os.write(pipe, _BUILD + b"\n")
                    table = build_table(other, vocabulary(), path, overwrite=True, threads=1)
                else:
                    change = random_change(own)
                    os.write(pipe, change.to_bytes() + b"\n")
                    table.change(**arguments(change))
                os.write(pipe, b"done\n")

        child, reads = fork(work)
        assert os.read(reads, 6) == b"ready\n"
        time.sleep(rng.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        killed, lines = ended(child, reads)
        assert killed
        done += len(lines) // 2
        for begun, end in zip(lines[::2], lines[1::2], strict=False):
            assert end == b"done"
            model = changed(model, begun)
        found = look(path)
        last = lines[-1].decode() if len(lines) % 2 else "nothing"
        under_way[last if last in under_way else "change"] += 1
        if len(lines) % 2:
            after = changed(model, lines[-1])
            assert found in (model.content, after.content)
            if after.content != model.content:
                outcomes["taken" if found == after.content else "lost"] += 1
            if found == after.content:
                model = after
        assert found == model.content
    table = DocidTable.open(path)
    table.change()
    nothing_left_over(path)
    return {"kills": kills, "operations": done} | under_way | outcomes


def at_every_step(folder: Path) -> dict[str, int]:
    """A change, a compaction and builds, each killed before its first step, before its second, and so on."""
    corpus, other = write_small_corpus(folder / "corpus"), folder / "other"
    write_small_corpus(other, _REBUILT)
    start, work = folder / "start", folder / "table"
    build_table(corpus, vocabulary(), start, threads=1)
    rng = random.Random(3)
    change = random_change(rng)
    first = Change(add=[("n1", tokens_of("a"))], remove_documents=["d3"])
    DocidTable.open(start).change(**arguments(first))
    before = Model()
    before.change(**arguments(first))
    after = before.copy()
    after.change(**arguments(change))
    rebuilt = Model(_REBUILT)
    torn = folder / "torn"  # a crash has left half a change behind
    shutil.copytree(start, torn)
    DocidTable.open(torn).change(add=[(doc_id, tokens_of(text)) for doc_id in IDS for text in TEXTS])
    os.truncate(torn / "changes-000001.log", (torn / "changes-000001.log").stat().st_size - 1)
    operations: list[tuple[str, Path | None, Callable[[], object], list[Content | None]]] = [
        ("change", start, lambda: DocidTable.open(work).change(**arguments(change)), [before.content, after.content]),
        ("torn", torn, lambda: DocidTable.open(work).change(**arguments(change)), [before.content, after.content]),
        ("compact", start, lambda: DocidTable.open(work).compact(threads=1), [before.content, before.content]),
        (
            "build anew",
            start,
            lambda: build_table(other, vocabulary(), work, overwrite=True, threads=1),
            [before.content, rebuilt.content],
        ),
        ("build", None, lambda: build_table(other, vocabulary(), work, threads=1), [None, rebuilt.content]),
    ]
    kills = {}
    for name, template, act, (old, new) in operations:
        for step in count():
            shutil.rmtree(work, ignore_errors=True)
            if template:
                shutil.copytree(template, work)
            child, reads = fork(lambda _, act=act, step=step: killed_at(step, act))  # type: ignore[misc]
            killed, _ = ended(child, reads)
            found = None if old is None and not (work / "table.pixnar").exists() else look(work)
            assert found in (old, new), f"{name}, step {step}"
            if not killed:
                assert found == new
                break
            # Whatever the crash left is no trouble, and is gone in the end.
            if found is None:
                try:
                    DocidTable.open(work)
                except PixnarError:
                    pass
                else:
                    raise AssertionError("there should be no table")
            if found is None or old is not None:
                act()
            assert look(work) == new
            DocidTable.open(work).change()
            nothing_left_over(work)
        kills[name] = step
    return kills


def killed_at(step: int, act: Callable[[], object]) -> None:
    """Do something, but be killed before its step of some number: of all that is done to files."""
    left = step
    sync = os.fsync

    def tick(event: str, _: object) -> None:
        nonlocal left
        if event in _EVENTS:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    def synced(fd: int) -> None:
        tick("open", None)
        sync(fd)
        tick("open", None)

    sys.addaudithook(tick)
    os.fsync = synced  # type: ignore[assignment]
    act()


def while_read(folder: Path, seconds: float) -> dict[str, int]:
    """A table is read all the time while it is changed, compacted and built anew."""
    path = folder / "table"
    one, two = write_small_corpus(folder / "one"), write_small_corpus(folder / "two", [("d1", "city break")])
    build_table(one, vocabulary(), path, threads=1)

    def work(_: int) -> NoReturn:
        while True:
            for corpus in (two, one):
                table = build_table(corpus, vocabulary(), path, overwrite=True, threads=1)
                for i in range(6):
                    table.change(add=[(f"n{i}", tokens_of("a"))])
                    if i % 2:
                        table.compact(threads=1)

    possible = []
    for pairs in (PAIRS, (("d1", "city break"),)):
        model = Model(pairs)
        possible.append(model.content)
        for i in range(6):
            model.change(add=[(f"n{i}", tokens_of("a"))])
            possible.append(model.content)
    child, reads = fork(work)
    kept = DocidTable.open(path)
    opened = refreshed = 0
    seen = set()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            found = content(DocidTable.open(path), IDS)
            assert found in possible, found
            seen.add(possible.index(found))
            opened += 1
            refreshed += kept.refresh()
            assert content(kept, IDS) in possible
    finally:
        os.kill(child, signal.SIGKILL)
        ended(child, reads)
    assert look(path) in possible
    return {"opened": opened, "refreshed": refreshed, "states": len(seen)}


def main() -> None:
    """How, and in which folder; prints what was done as JSON."""
    how, folder, *numbers = sys.argv[1:]
    vocabulary()
    for text in TEXTS:
        tokens_of(text)
    if how == "random":
        done = at_random(Path(folder), int(numbers[0]), int(numbers[1]))
    elif how == "steps":
        done = at_every_step(Path(folder))
    else:
        done = while_read(Path(folder), float(numbers[0]))
    print(json.dumps(done))


if __name__ == "__main__":
    main()
