"""Queries by document, on disk: a file of them may have any order and be larger than memory."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from pixnar.base.storage import sync_folder


class QueryLookup:
    """The queries of each document, in the order they were given."""

    def __init__(self, path: Path) -> None:
        """Open what `build` wrote."""
        self._base = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True)

    @classmethod
    def build(cls, path: Path, rows: Iterable[tuple[str, list[str]]]) -> QueryLookup:
        """Write a lookup, whole or not at all."""
        aside = path.with_name(f"{path.name}.part")
        aside.unlink(missing_ok=True)
        base = sqlite3.connect(aside)
        base.execute("PRAGMA journal_mode = OFF")
        base.execute("PRAGMA synchronous = OFF")  # it is synced as a whole below, before it gets its name
        base.execute("CREATE TABLE queries (document BLOB, query BLOB)")
        base.executemany("INSERT INTO queries VALUES (?, ?)", _pairs(rows))
        base.execute("CREATE INDEX by_document ON queries (document)")
        base.commit()
        base.close()
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
        return cls(path)

    def of(self, doc_id: str) -> list[str]:
        """The queries of a document."""
        found = self._base.execute("SELECT query FROM queries WHERE document = ? ORDER BY rowid", (_bytes(doc_id),))
        return [query.decode("utf-8", "surrogatepass") for (query,) in found]

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()


def _pairs(rows: Iterable[tuple[str, list[str]]]) -> Iterator[tuple[bytes, bytes]]:
    return ((_bytes(doc_id), _bytes(query)) for doc_id, queries in rows for query in queries)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
