"""Files between the jobs of one build: in a folder that all workers see, written aside and renamed, gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError

_ATTEMPTS = 20  # to remove a folder; the second nearly always does it


@contextlib.contextmanager
def scratch_folder(where: Path) -> Iterator[Path]:
    """A new folder in `where`, for as long as the block runs."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".pixnar-ray-", dir=os.path.abspath(where)))  # workers work elsewhere
    except OSError as error:
        raise PixnarError(
            f"cannot make a scratch folder in {where}: {error.strerror}; name one with --scratch that all workers see"
        ) from error
    try:
        yield folder
    finally:
        _clear(folder)


def _clear(folder: Path) -> None:
    """Remove a folder into which workers that were told to stop may still write.

    Under another name they do not find it any more; only who was just about to make a file still does.
    """
    gone = folder.with_name(f"{folder.name}.gone")
    try:
        folder.rename(gone)
    except OSError:
        gone = folder
    for _ in range(_ATTEMPTS):
        shutil.rmtree(gone, ignore_errors=True)
        if not gone.exists():
            return
        time.sleep(0.05)


@contextlib.contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that is there under its name when it is whole, however often and by whomever it is written."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(aside, "wb") as file:
            yield file
        os.replace(aside, path)
    except OSError as error:
        raise PixnarError(
            f"cannot write {path}: {error.strerror or error}; make room, or name another --scratch"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def save(path: Path, array: NDArray[Any]) -> None:
    """Write an array."""
    with written(path) as file:
        np.save(file, array)


def load(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read what `save` wrote."""
    try:
        if mapped and path.stat().st_size > 4096:
            return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]
        return np.load(path)  # type: ignore[no-any-return]
    except OSError as error:
        raise PixnarError(
            f"cannot read {path}: {error.strerror or error}; the scratch folder must be one that all workers see"
        ) from error


def remove(folder: Path, pattern: str) -> None:
    """Remove files that no job will read again."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            path.unlink()
