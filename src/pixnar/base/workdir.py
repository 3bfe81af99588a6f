"""Output folders and working folders: claimed by one process, resumed with the same settings, swapped in when whole.

There are three ways to an output, by how long it takes to make:

- `staged` builds a folder aside in one go and swaps it into place.
- `Workdir` keeps finished pieces in a folder beside the output, so that a run that was killed can be resumed.
- `scratch_folder` has room for files that nobody needs once the work is done.

None of them overwrites what it did not write. What a kill leaves behind is removed or resumed by the next run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pixnar.base.errors import PixnarError
from pixnar.base.storage import UNFINISHED, atomic_write, sync_folder, unwritable

LOCK = "lock"  # the file in a folder that is held by the process that works there
WHOLE = "whole"  # the output in a working folder, before it is moved to its place

_ANY = re.compile(r".*", re.DOTALL)
_ATTEMPTS = 20  # to remove a folder that is still written to; the second nearly always succeeds


@contextlib.contextmanager
def locked_folder(folder: Path, patience: float = 2.0) -> Iterator[None]:
    """Hold the lock of a folder; an error if another process holds it for longer than `patience` seconds."""
    try:
        file = open(folder / LOCK, "ab")  # noqa: SIM115 - closed below
    except OSError as error:
        raise PixnarError(
            f"cannot change {folder}: {error.strerror}; see who may write there, or work on a copy"
        ) from error
    with file:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise PixnarError(
                        f"{folder} is being changed by another process: try again when it is done"
                    ) from error
            except OSError as error:
                raise PixnarError(f"cannot lock {folder}: {error.strerror}; work on a disk that has locks") from error
            time.sleep(0.005)
        if not _is_file_at(file, folder / LOCK):  # its last owner has removed the folder
            raise PixnarError(f"{folder} was in use until now by another run, which has ended: run the command again")
        yield


def remove_unlocked(folder: Path) -> None:
    """Remove a folder in which only the lock is left; call it with the lock, which goes last."""
    with contextlib.suppress(OSError):  # whatever else is there is not ours
        os.unlink(folder / LOCK)
        os.rmdir(folder)


def swap(built: Path, folder: Path) -> None:
    """Replace a folder, if there is one, by a new one; a kill in between leaves both, the old one renamed."""
    if built == folder:
        return
    old = folder.with_name(f".{folder.name}.replaced-{os.getpid()}")
    replaces = folder.exists()
    if replaces:
        shutil.rmtree(old, ignore_errors=True)  # of an earlier process with our number
        os.replace(folder, old)
    try:
        os.replace(built, folder)
    except BaseException:
        if replaces:
            os.replace(old, folder)
        raise
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def staged(folder: Path, error_type: type[PixnarError] = PixnarError) -> Iterator[Path]:
    """A new folder beside `folder` that replaces it when the block ends well; otherwise nothing is left of it.

    Until then a folder that is there stays as it is. Whether it may be replaced is for the caller to decide.
    """
    folder = Path(os.path.abspath(folder))  # a trailing slash or `..` must not move the new folder elsewhere
    _sweep(folder)
    built = folder.with_name(f"{_prefix(folder)}{os.getpid()}{UNFINISHED}")
    with _writing(folder, error_type):
        built.mkdir()
    try:
        yield built
        with _writing(folder, error_type):
            sync_folder(built)
            swap(built, folder)
    finally:
        shutil.rmtree(built, ignore_errors=True)


@contextlib.contextmanager
def _writing(folder: Path, error_type: type[PixnarError]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise error_type(f"cannot write {folder}: {error.strerror or error}; choose another place") from error


def _prefix(folder: Path) -> str:
    """The beginning of the names of folders that this machine stages; the number of the process follows."""
    return f".{folder.name}.{socket.gethostname()}-"


def _sweep(folder: Path) -> None:
    """Remove what killed processes of this machine staged for a folder, or moved aside to replace it."""
    built = re.compile(re.escape(_prefix(folder)) + r"(\d+)" + re.escape(UNFINISHED))
    replaced = re.compile(rf"\.{re.escape(folder.name)}\.replaced-(\d+)")  # see `swap`
    for path in folder.parent.iterdir() if folder.parent.is_dir() else ():
        match = built.fullmatch(path.name) or (folder.exists() and replaced.fullmatch(path.name))
        if match and (int(match[1]) == os.getpid() or not _runs(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno != errno.ESRCH  # a process of another user cannot be signalled, but runs
    return True


def work_path(target: Path) -> Path:
    """The working folder of an output."""
    return target.with_name(f"{target.name}.work")


class Workdir:
    """The working folder of an output file: finished pieces are kept in it until all are there and can be joined.

    Without the file `mark`, a folder that is not empty is not ours; nor is one with names other than `files`. `Workdir`
    does not write the mark: it is the lock, or the note of the settings with which the work was begun.
    """

    def __init__(self, target: Path, *, mark: str = LOCK, files: re.Pattern[str] = _ANY) -> None:
        self.target, self.path = target, work_path(target)
        self._mark, self._files = mark, files
        self._removed = False

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Make the folder if need be and hold its lock; files that a kill interrupted are removed."""
        if self._is_foreign():
            raise PixnarError(
                f"{self.path} is needed for the work and holds something else: move it away, or choose another output"
            )
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise PixnarError(f"cannot write {self.path}: {error.strerror}; choose another output") from error
        with locked_folder(self.path):
            self._clear(UNFINISHED)
            yield

    @contextlib.contextmanager
    def output(self) -> Iterator[IO[bytes]]:
        """The output to write: made in this folder, and moved to its place when the block ends well.

        So a kill leaves nothing beside the target, where it might be taken for a file of the user's.
        """
        whole = self.path / WHOLE
        with atomic_write(whole) as file:
            yield file
        place = Path(os.path.realpath(self.target))  # a link stays a link
        try:
            os.replace(whole, place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise unwritable(place, error) from error
            with atomic_write(place) as file, open(whole, "rb") as source:  # the link leads to another disk
                shutil.copyfileobj(source, file)
        sync_folder(place.parent)

    def clear(self) -> None:
        """Remove all our files but the lock; the mark goes last, since what lies there without it is nobody's."""
        self._clear()
        if self._mark != LOCK:
            (self.path / self._mark).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder with all that is ours; once only, as a folder that is there later is another run's."""
        if not self._removed:
            self._removed = True
            self.clear()
            remove_unlocked(self.path)

    def forget(self, pieces: str) -> None:
        """Remove the folder unless there are pieces, files that match a pattern, to resume with."""
        if not self._removed and not any(self.path.glob(pieces)):
            self.remove()

    def _is_foreign(self) -> bool:
        if not self.path.is_dir():
            return os.path.lexists(self.path)
        names = set(os.listdir(self.path))
        others = {name for name in names - {LOCK} if not name.endswith(UNFINISHED)}
        return bool(others and self._mark not in names) or not all(map(self._files.fullmatch, names - {LOCK}))

    def _clear(self, ending: str = "") -> None:
        for path in list(self.path.iterdir()):
            name = path.name
            if name in (LOCK, self._mark) or not name.endswith(ending) or not self._files.fullmatch(name):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def read_note(note: Path) -> Any:
    """The content of a note of settings; None if there is none that can be read."""
    try:
        return json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None


def may_resume(where: Path, noted: Any, settings: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Whether work that was begun with the settings `noted` is resumed with `settings`: they must be equal.

    If they differ, `overwrite` permits to begin anew; without it, an error names the setting.
    """
    wanted = json.loads(json.dumps(settings))  # lists, not tuples, as in a note
    if noted == wanted:
        return True
    if overwrite:
        return False
    found = f"another {_difference(noted, wanted)}" if isinstance(noted, dict) else "settings that cannot be read"
    raise PixnarError(f"{where} was begun with {found}: use the same again, or pass --overwrite to begin anew")


def _difference(noted: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The first setting that differs, with a dot before the name of one inside another."""
    for name, value in wanted.items():
        if name in noted and isinstance(value, dict) and isinstance(noted[name], dict) and noted[name] != value:
            return f"{name}.{_difference(noted[name], value)}"
        if name not in noted or noted[name] != value:
            return name
    return next((name for name in noted if name not in wanted), "setting")


@contextlib.contextmanager
def scratch_folder(where: Path) -> Iterator[Path]:
    """A new folder in `where` that is gone when the block ends."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".pixnar-ray-", dir=os.path.abspath(where)))  # workers work elsewhere
    except OSError as error:
        raise PixnarError(
            f"cannot make a scratch folder in {where}: {error.strerror}; name one with --scratch that all workers see"
        ) from error
    try:
        yield folder
    finally:
        # Workers that were told to stop may still write there. Once it is renamed they do not find it any more.
        with contextlib.suppress(OSError):
            folder = folder.rename(folder.with_name(f"{folder.name}.gone"))
        for _ in range(_ATTEMPTS):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.05)


def _is_file_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
