"""A docid table on disk: a folder whose one small file, replaced in one step, says which other files count.

    table.pixnar              which generation is in force; written last, renamed into place
    docids-000001.pixnar      the docids of generation 1 and whom they name
    documents-000001.pixnar   ids, titles and metadata
    spellings-000001.pixnar   the docids as they were written
    changes-000001.log        what was added and removed since
    vocabulary.pixnar         what docids are encoded with

Whatever is there besides is left over from work that was cut short, and is removed by the next change.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pixnar.errors import FileFormatError, PixnarError
from pixnar.storage import read_container, sync_folder, write_container

_MANIFEST = "table.pixnar"
_KIND, _VERSION = "table", 1
_OURS = re.compile(r"(docids|documents|spellings)-\d{6,}\.pixnar|changes-\d{6,}\.log|\..*\.part")


class TableFolder:
    """Paths and the generation in force of one table."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.generation = 1
        self.meta: dict[str, Any] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TableFolder:
        """Find out what is in force."""
        folder = cls(path)
        if not folder.path.is_dir():
            there = "is a file" if folder.path.exists() else "does not exist"
            raise FileFormatError(f"no docid table {folder.path}: it {there}; give the folder that pixnar table wrote")
        folder.reload()
        return folder

    def reload(self) -> None:
        """Read again which generation is in force."""
        if not (self.path / _MANIFEST).is_file():
            raise FileFormatError(f"{self.path} is no docid table: it has no {_MANIFEST}; build it with pixnar table")
        self.meta = read_container(self.path / _MANIFEST, _KIND, _VERSION).meta
        self.generation = int(self.meta["generation"])

    def commit(self, generation: int, meta: dict[str, Any]) -> None:
        """Put a generation, whose files are all there, in force."""
        self.meta = meta | {"generation": generation}
        write_container(self.path / _MANIFEST, _KIND, _VERSION, self.meta, {})
        self.generation = generation

    def file(self, part: str, generation: int | None = None) -> Path:
        """Where a part of a generation lies."""
        suffix = "log" if part == "changes" else "pixnar"
        return self.path / f"{part}-{generation or self.generation:06}.{suffix}"

    @property
    def vocabulary(self) -> Path:
        """The vocabulary that the docids are encoded with."""
        return self.path / "vocabulary.pixnar"

    def sweep(self) -> None:
        """Remove what no generation in force needs; call it with the lock."""
        parts = ("docids", "documents", "spellings", "changes")
        wanted = {self.file(part).name for part in parts}
        for name in os.listdir(self.path):
            if _OURS.fullmatch(name) and name not in wanted:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path / name)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one that changes the table; another process that tries gets an error at once."""
        with open(self.path / "lock", "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise PixnarError(
                    f"{self.path} is being changed by another process: try again when it is done"
                ) from error
            yield


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """A folder to fill, moved to `path` when the block ends well, and gone when it does not."""
    target = Path(os.path.realpath(path))
    check_target(target, overwrite=overwrite)
    try:
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    except OSError as error:
        raise PixnarError(f"cannot write {target}: {error.strerror}; choose another place") from error
    try:
        os.chmod(aside, 0o777 & ~_umask())
        yield aside
        if target.exists():
            old = aside.with_suffix(".old")
            os.rename(target, old)
            os.rename(aside, target)
            shutil.rmtree(old)
        else:
            os.rename(aside, target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raise before the work if it could not be written there."""
    if not target.parent.is_dir():
        raise PixnarError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    if not target.exists():
        return
    if not (target / _MANIFEST).is_file():
        raise PixnarError(f"{target} exists and is no docid table: choose another name or remove it")
    if not overwrite:
        raise PixnarError(f"{target} exists: choose another name or say --overwrite")


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
