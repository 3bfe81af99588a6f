"""The index in service, and its successors: a new one is taken up when it is whole, a broken one is left alone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.base.storage import in_memory
from pixnar.index import Index
from pixnar.index.files import DOCIDS
from pixnar.index.manifest import UNFINISHED
from pixnar.runtime import CachedEncoder
from pixnar.serve.handlers import Job, Watch, answers
from pixnar.serve.limits import Limits
from pixnar.serve.schemas import Addition
from pixnar.serve.updates import add, remove
from pixnar.table import DocidTable

Event = Callable[..., None]
State = tuple[tuple[str, int, int, int], ...]
_WARM_UPS = 20
_AGAIN = 60.0  # seconds until a folder that could not be used is tried again as it is


class LiveIndex:
    """Holds one index, in memory; `index` is whichever is in force. A search that has one keeps it to its end.

    `look` compares the folder with what was loaded. Docids that other processes changed are taken in; a new index is
    loaded, checked whole, warmed up and then put in force; of anything else a line is told, once, and the old one goes
    on.
    """

    def __init__(self, folder: Path, tell: Event, *, cache: int = 0, **options: Any) -> None:
        """`cache` is how many queries' vectors are remembered; the other options are those of `Index.load`."""
        self.folder, self._tell, self._cache, self._options = folder, tell, cache, options
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self.listeners: list[Callable[[str], None]] = []  # who is told the names of events
        self._told = ""
        self._state = self._seen = self._files()
        self._table = self._table_files()
        self._refused: State | None = None
        self._refused_table: State | None = None
        self._again = 0.0  # when a refused state is tried once more
        self.seconds = 0.01  # what a query takes
        self.index = self._load()

    @property
    def name(self) -> str:
        """What the index is called: its folder, or the one around it if that is just called index."""
        folder = self.folder.resolve()
        return folder.parent.name if folder.name == "index" else folder.name

    def answers(self, jobs: Sequence[Job], watch: Watch | None = None) -> list[bytes | Exception]:
        """See `Backend`."""
        return answers(self.index, jobs, watch)

    def facts(self) -> dict[str, Any]:
        """See `Backend`."""
        table, engine = self.index.table, self.index.engine
        return {
            "documents": table.documents,
            "docids": table.pairs,
            "vocabulary": table.vocab_size,
            "slots": engine.scorer.slots,
            "sources": ["docids"] if engine.fusion is None else list(engine.fusion.weights),
            "keys": list(table.snapshot().keys(0)),
        }

    def add(self, wish: Addition, limits: Limits) -> None:
        """See `Backend`."""
        add(self.index.table, wish, limits)

    def remove(self, doc_ids: Sequence[str], docids: Sequence[str], limits: Limits) -> None:
        """See `Backend`."""
        remove(self.index.table, doc_ids, docids, limits)

    def watch(self, every: float = 1.0) -> None:
        """Look again and again, on a thread of its own."""
        self._watcher = threading.Thread(target=self._look_often, args=(every,), name="watcher", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join()

    def look(self) -> bool:
        """Compare folder and memory once; whether another index is in force now."""
        now = self._files()
        if now == self._state:
            self._refresh()
            return False
        if now != self._seen:
            self._seen = now  # files may still be on their way: wait until they stay the same from one look to the next
            return False
        if now == self._refused and time.monotonic() < self._again:
            return False
        try:
            index = self._load()
            with in_memory():
                index.verify()
        except (PixnarError, OSError) as error:
            self._refused, self._again = now, time.monotonic() + _AGAIN
            self._say_once(f"{error}; the index loaded before goes on")
            return False
        self.index, self._state, self._table = index, now, self._table_files()
        self._say_once("")
        self._event("index-swapped", index=str(self.folder), documents=index.table.documents)
        return True

    def _look_often(self, every: float) -> None:
        while not self._stop.wait(every):
            try:
                self.look()
            except Exception as error:  # whatever it is, the server goes on with what it has
                self._say_once(f"{type(error).__name__}: {error}; the index loaded before goes on")

    def _load(self) -> Index:
        index = Index.load(self.folder, mapped=False, warm_up=True, **self._options)
        took = []
        for i in range(_WARM_UPS):
            began = time.perf_counter()
            index.search(f"warm up {i}", 10)
            took.append(time.perf_counter() - began)
        self.seconds = sorted(took)[_WARM_UPS // 2]
        if self._cache:
            index.encoder = CachedEncoder(index.encoder, self._cache)
        return index

    def _refresh(self) -> None:
        """Take in docids that another process added or removed, or compacted."""
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
            self._say_once(f"{error}; the docids read before stay in force")
            return
        self._table = now
        self._say_once("")
        if changed:
            self.index.engine.warm_up()
            self._event("docids-refreshed", index=str(self.folder), documents=table.documents)

    def _table_files(self) -> State:
        """The same of the docid table, but for its journal and its lock."""
        folder = self.folder / DOCIDS
        return _states(path for path in folder.glob("*") if path.suffix != ".log" and path.name != "lock")

    def _files(self) -> State:
        """Size, time and identity of every file but the docid table's, which changes on its own terms."""
        mine = (
            path for path in self.folder.rglob("*") if path.relative_to(self.folder).parts[0] not in (DOCIDS, "work")
        )
        return _states(path for path in mine if path.is_file())

    def _event(self, name: str, **facts: Any) -> None:
        self._tell(name, **facts)
        for listener in self.listeners:
            listener(name)

    def _say_once(self, line: str) -> None:
        if line and line != self._told:
            self._event("index-refused", level="error", reason=line)
        self._told = line


def _states(paths: Iterable[Path]) -> State:
    found = []
    for path in sorted(paths):
        with contextlib.suppress(OSError):
            facts = path.stat()
            if path.suffix != UNFINISHED:
                found.append((str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino))
    return tuple(found)
