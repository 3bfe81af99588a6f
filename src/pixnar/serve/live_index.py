"""Live index: serves the index of a folder and hot-swaps a new version once it is complete and valid."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.base.storage import UNFINISHED, in_memory
from pixnar.index import Index
from pixnar.index.files import DOCIDS
from pixnar.runtime import CachedEncoder
from pixnar.serve.handlers import Job, Watch, add, answers, remove
from pixnar.serve.queue import Limits
from pixnar.serve.schemas import Addition
from pixnar.table import DocidTable

Event = Callable[..., None]
State = tuple[tuple[str, int, int, int], ...]
_WARM_UPS = 20
_AGAIN = 60.0  # seconds until a folder that could not be used is tried again as it is


class LiveIndex:
    """An index in memory; `index` is the one in force. A running search keeps the index it started with.

    `look` compares the folder with what was loaded. Docids that other processes changed are read again. A new index is
    loaded, warmed up, verified and then put in force. An unusable index is logged once and the old one stays.
    """

    def __init__(self, folder: Path, log: Event, *, cache: int = 0, **options: Any) -> None:
        """`cache` is the number of queries whose vectors are cached; the other options are those of `Index.load`."""
        self.folder, self._log, self._cache, self._options = folder, log, cache, options
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self.listeners: list[Callable[[str], None]] = []  # called with the name of each event
        self._last_problem = ""
        self._state = self._seen = self._files()
        self._table = self._table_files()
        self._refused: State | None = None
        self._refused_table: State | None = None
        self._again = 0.0  # when a refused state is tried once more
        self.seconds = 0.01  # time of one query
        self.index = self._load()

    @property
    def name(self) -> str:
        """Name of the index: its folder, or the parent of a folder that is just called index."""
        folder = self.folder.resolve()
        return folder.parent.name if folder.name == "index" else folder.name

    def answers(self, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
        """See `Backend`."""
        return answers(self.index, jobs, watch)

    def facts(self) -> dict[str, Any]:
        """See `Backend`."""
        table, ranker = self.index.table, self.index.ranker
        return {
            "documents": table.documents,
            "docids": table.pairs,
            "vocabulary": table.vocab_size,
            "slots": ranker.scorer.slots,
            "sources": ["docids"] if ranker.fusion is None else list(ranker.fusion.weights),
            "keys": list(table.snapshot().keys(0)),
        }

    def add(self, addition: Addition, limits: Limits) -> None:
        """See `Backend`."""
        add(self.index.table, addition, limits)

    def remove(self, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
        """See `Backend`."""
        remove(self.index.table, doc_ids, docids, limits)

    def watch(self, every: float = 1.0) -> None:
        """Call `look` periodically on a thread of its own."""
        self._watcher = threading.Thread(target=self._poll, args=(every,), name="watcher", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Stop watching the folder."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join()

    def look(self) -> bool:
        """Compare folder and memory once; return whether a new index is in force."""
        now = self._files()
        if now == self._state:
            self._refresh()
            return False
        if now != self._seen:
            self._seen = now  # files may still be written: wait until two looks in a row agree
            return False
        if now == self._refused and time.monotonic() < self._again:
            return False
        try:
            index = self._load()
            with in_memory():
                index.verify()
        except (PixnarError, OSError) as error:
            self._refused, self._again = now, time.monotonic() + _AGAIN
            self._report_once(f"{error}; the index loaded before goes on")
            return False
        self.index, self._state, self._table = index, now, self._table_files()
        self._report_once("")
        self._event("index-swapped", index=str(self.folder), documents=index.table.documents)
        return True

    def _poll(self, every: float) -> None:
        while not self._stop.wait(every):
            try:
                self.look()
            except Exception as error:  # whatever it is, the index in force stays
                self._report_once(f"{type(error).__name__}: {error}; the index loaded before goes on")

    def _load(self) -> Index:
        index = Index.load(self.folder, mapped=False, warm_up=True, **self._options)
        times = []
        for i in range(_WARM_UPS):
            began = time.perf_counter()
            index.search(f"warm up {i}", 10)
            times.append(time.perf_counter() - began)
        self.seconds = sorted(times)[_WARM_UPS // 2]
        if self._cache:
            index.searcher.encoder = CachedEncoder(index.encoder, self._cache)
        return index

    def _refresh(self) -> None:
        """Read docids again that another process added, removed or compacted."""
        table, now = self.index.table, self._table_files()
        try:
            with in_memory():
                if now != self._table:
                    if now == self._refused_table and time.monotonic() < self._again:
                        return
                    DocidTable.check(self.folder / DOCIDS)
                changed = table.refresh()
        except (PixnarError, OSError) as error:
            self._refused_table, self._again = now, time.monotonic() + _AGAIN
            self._report_once(f"{error}; the docids read before stay in force")
            return
        self._table = now
        self._report_once("")
        if changed:
            self.index.ranker.warm_up()
            self._event("docids-refreshed", index=str(self.folder), documents=table.documents)

    def _table_files(self) -> State:
        """State of the docid table's files, except its journal and its lock."""
        folder = self.folder / DOCIDS
        return _states(path for path in folder.glob("*") if path.suffix != ".log" and path.name != "lock")

    def _files(self) -> State:
        """Size, time and inode of every file outside the docid table, which changes independently."""
        paths = (
            path for path in self.folder.rglob("*") if path.relative_to(self.folder).parts[0] not in (DOCIDS, "work")
        )
        return _states(path for path in paths if path.is_file())

    def _event(self, name: str, **facts: Any) -> None:
        self._log(name, **facts)
        for listener in self.listeners:
            listener(name)

    def _report_once(self, line: str) -> None:
        if line and line != self._last_problem:
            self._event("index-refused", level="error", reason=line)
        self._last_problem = line


def _states(paths: Iterable[Path]) -> State:
    states = []
    for path in sorted(paths):
        with contextlib.suppress(OSError):
            facts = path.stat()
            if path.suffix != UNFINISHED:
                states.append((str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino))
    return tuple(states)
