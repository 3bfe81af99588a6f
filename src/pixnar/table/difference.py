"""What a table holds now beside what it held when it was built: by document, docids added and docids removed.

Compaction folds the journal into a table and forgets it. The difference outlives compaction, so that whatever was built
together with the table, and is not built again, can count the changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.table.journal import Tokens

Docids = dict[Tokens, str]
"""Docids as they were written, by their tokens; "" where the table keeps no spellings."""

_KIND, _VERSION = "diff", 1


@dataclass(frozen=True)
class Difference:
    """The sum of all changes since a table was built. Removals come first: a removed document may have come back."""

    removed_documents: frozenset[str] = frozenset()
    added: Mapping[str, Docids] = field(default_factory=dict)
    removed: Mapping[str, Docids] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.removed_documents or self.added or self.removed)

    def part(self, mine: Callable[[str], bool]) -> Difference:
        """The same of some documents."""
        return Difference(
            frozenset(filter(mine, self.removed_documents)),
            {doc_id: docids for doc_id, docids in self.added.items() if mine(doc_id)},
            {doc_id: docids for doc_id, docids in self.removed.items() if mine(doc_id)},
        )

    def save(self, path: Path) -> None:
        """Write to one file, atomically."""
        content = {
            "removed_documents": sorted(self.removed_documents),
            "added": _rows(self.added),
            "removed": _rows(self.removed),
        }
        data = json.dumps(content, separators=(",", ":")).encode()  # lone surrogates survive as escapes
        write_container(path, _KIND, _VERSION, {}, {"json": np.frombuffer(data, np.uint8)})

    @classmethod
    def load(cls, path: Path) -> Difference:
        """Read a file that `save` wrote; every byte is compared with its checksum."""
        try:
            content: dict[str, Any] = json.loads(read_container(path, _KIND, _VERSION).arrays["json"].tobytes())
            added, removed = (
                {doc_id: {tuple(tokens): text for tokens, text in docids} for doc_id, docids in content[name]}
                for name in ("added", "removed")
            )
            return cls(frozenset(content["removed_documents"]), added, removed)
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"{path} is damaged ({error}): copy the table again, or build it again") from error


def _rows(docids: Mapping[str, Docids]) -> list[tuple[str, list[tuple[Tokens, str]]]]:
    return [(doc_id, sorted(docids[doc_id].items())) for doc_id in sorted(docids)]
