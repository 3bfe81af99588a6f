"""Files between the jobs of one build, in a scratch folder that all workers see; written aside and renamed."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError


@contextlib.contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that gets its name when it is whole, however often and by whichever worker it is written."""
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
