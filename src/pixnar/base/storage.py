"""How anything of ours reaches the disk: whole or not at all, versioned, checksummed, memory-mapped when read.

A *container* is one file: a 64-byte header, a JSON directory, then named arrays aligned to 64 bytes. Every byte of it
that means something is covered by a checksum. docs/file-formats.md has the layout.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import mmap
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError

UNFINISHED = ".part"  # how the names of files end that were being written when their process was killed

_HEADER = struct.Struct(
    "<8s8sIIQQQQ"
)  # magic, kind, version, reserved, directory size, file size, directory hash, hash
_MAGIC = b"\x89PIXNAR\n"
_ALIGN = 64
_BLOCK = 1 << 22  # bytes read at a time
_DTYPES = {
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "i64": np.int64,
    "f32": np.float32,
    "f64": np.float64,
}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
assert _HEADER.size <= _ALIGN
_IN_MEMORY: ContextVar[bool] = ContextVar("in_memory", default=False)


@dataclass(frozen=True)
class Container:
    """The contents of a container file; the arrays are read-only views of the file, mapped or in memory."""

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


@contextlib.contextmanager
def in_memory() -> Iterator[None]:
    """Inside this block files are read into memory, not mapped: whoever cuts one short then harms no reader.

    A mapped file may be deleted or replaced while it is in use, but the system ends a process that touches a part of it
    that was cut off.
    """
    token = _IN_MEMORY.set(True)
    try:
        yield
    finally:
        _IN_MEMORY.reset(token)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write aside, flush to disk, rename: readers see the old file or the new one, never half of either.

    The permissions are those an ordinary new file would get, and nothing is left behind when the block raises.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    name = _aside(target)
    try:
        with open(name, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
        sync_folder(target.parent)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def write_json(path: str | os.PathLike[str], value: Any, **options: Any) -> None:
    """Write a value as JSON, atomically; the options are those of `json.dumps`."""
    with atomic_write(path) as file:
        file.write(json.dumps(value, **options).encode())


@contextlib.contextmanager
def gzipped(file: IO[bytes], target: Path, level: int = 6) -> Iterator[IO[bytes]]:
    """The file itself or, if the name of its target ends in .gz, a gzip stream into it; no time of day is in that."""
    if target.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=file, mtime=0) as stream:
        yield stream  # type: ignore[misc]


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise at once if `atomic_write` could not write there, before hours of work for it."""
    os.unlink(_aside(Path(os.path.realpath(path))))


def _aside(target: Path) -> str:
    if target.is_dir():
        raise PixnarError(f"{target} is a folder: give the path of a file to write")
    if not target.parent.is_dir():
        raise PixnarError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    try:
        fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=UNFINISHED)
    except OSError as error:
        raise unwritable(target, error) from error
    os.close(fd)
    return name


def unwritable(target: Path, error: OSError) -> PixnarError:
    """What to say of a file that cannot be written."""
    return PixnarError(f"cannot write {target}: {error.strerror or error}; make room there or choose another place")


def reserve(path: Path, size: int) -> None:
    """Make a file of so many zero bytes that have their room on the disk: who maps a file without room may be ended."""
    try:
        with open(path, "wb") as file:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            file.truncate(size)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise unwritable(path, error) from error


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def link_or_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Let a file be in a second place as well: as a second name of it or, on another disk, as a copy.

    Files of ours are replaced and not written into, so what has two names stays the same under both.
    """
    try:
        os.link(source, target)
    except OSError:
        with open(source, "rb") as file, atomic_write(target) as copy:
            shutil.copyfileobj(file, copy)


def write_container(
    path: str | os.PathLike[str], kind: str, version: int, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write named one-dimensional arrays and a JSON-able `meta` to one file, atomically.

    The same content gives the same bytes.
    """
    entries: list[dict[str, Any]] = []
    position = 0
    flat = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in flat.items():
        position += -position % _ALIGN
        entries.append(
            {
                "name": name,
                "dtype": _DTYPE_NAMES[array.dtype],
                "offset": position,  # counted from the first array, so that the directory's own length does not matter
                "size": array.nbytes,
                "xxh3": f"{xxhash.xxh3_64_intdigest(_raw(array)):016x}",
            }
        )
        position += array.nbytes
    directory = json.dumps({"meta": dict(meta), "arrays": entries}, ensure_ascii=False, sort_keys=True).encode()
    start = _ALIGN + len(directory)
    start += -start % _ALIGN
    fields = (_MAGIC, kind.encode().ljust(8, b"\0"), version, 0, len(directory), start + position)
    head = _HEADER.pack(*fields, xxhash.xxh3_64_intdigest(directory), 0)
    head = _HEADER.pack(*fields, xxhash.xxh3_64_intdigest(directory), xxhash.xxh3_64_intdigest(head[:-8]))
    with atomic_write(path) as file:
        file.write(head.ljust(_ALIGN, b"\0"))
        file.write(directory.ljust(start - _ALIGN, b"\0"))
        for entry, array in zip(entries, flat.values(), strict=True):
            gap = start + entry["offset"] - file.tell()
            file.write(b"\0" * gap)
            file.write(_raw(array))


def container_kind(path: str | os.PathLike[str], wanted: str) -> str:
    """What kind of container a file is, by its header alone; `wanted` is for the error if it is none."""
    return _open(Path(path), wanted).kind


def read_container(path: str | os.PathLike[str], kind: str, version: int, *, verify: bool = True) -> Container:
    """Map a container of the given kind, at most of `version`; `verify` also checks every array's checksum."""
    where = Path(path)
    mapped, found, found_version, directory_size, directory_hash = _open(where, kind)
    if found != kind:
        raise FileFormatError(f"{where} holds a {found}, not a {kind}: give the path of a {kind} file")
    if found_version > version:
        raise FileFormatError(
            f"{where} has {kind} format {found_version}, this release reads up to {version}: upgrade pixnar"
        )
    directory_bytes = bytes(mapped[_ALIGN : _ALIGN + directory_size])
    if len(directory_bytes) != directory_size or xxhash.xxh3_64_intdigest(directory_bytes) != directory_hash:
        raise _broken(where, "its directory is damaged", kind)
    directory = json.loads(directory_bytes)
    start = _ALIGN + directory_size
    start += -start % _ALIGN
    arrays = {}
    view = memoryview(mapped)
    for entry in directory["arrays"]:
        begin = start + entry["offset"]
        part = view[begin : begin + entry["size"]]
        if len(part) != entry["size"]:
            raise _broken(where, f"array {entry['name']} reaches past the end", kind)
        if verify and f"{xxhash.xxh3_64_intdigest(part):016x}" != entry["xxh3"]:
            raise _broken(where, f"array {entry['name']} does not match its checksum", kind)
        arrays[entry["name"]] = np.frombuffer(part, _DTYPES[entry["dtype"]])
    return Container(directory["meta"], arrays)


def file_digest(path: str | os.PathLike[str]) -> str:
    """The XXH3-128 of a file of any kind, read in blocks."""
    whole = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            whole.update(block)
    return whole.hexdigest()


def _raw(array: NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data


Bytes = mmap.mmap | memoryview


class _Opened(NamedTuple):
    mapped: Bytes
    kind: str
    version: int
    directory_size: int
    directory_hash: int


def _open(where: Path, wanted: str) -> _Opened:
    """Map a file whose header is sound."""
    try:
        with open(where, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _ALIGN:
                raise _broken(where, f"it has {size} bytes, less than a header", wanted)
            mapped = _whole(file, size) if _IN_MEMORY.get() else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FileFormatError(f"cannot open {where}: {reason}; expected a {wanted} file") from error
    head = mapped[: _HEADER.size]
    magic, kind, version, _, directory_size, file_size, directory_hash, head_hash = _HEADER.unpack(head)
    if magic != _MAGIC:
        raise FileFormatError(f"{where} is not a pixnar file: its first bytes are {magic!r}; expected a {wanted} file")
    if xxhash.xxh3_64_intdigest(head[:-8]) != head_hash or any(mapped[_HEADER.size : _ALIGN]):
        raise _broken(where, "its header is damaged", wanted)
    if file_size != size:
        raise _broken(where, f"it should have {file_size} bytes and has {size}", wanted)
    return _Opened(mapped, kind.rstrip(b"\0").decode(errors="replace"), version, directory_size, directory_hash)


def _whole(file: IO[bytes], size: int) -> memoryview:
    """A file's bytes in memory that begins at a page, as a mapping does; read-only."""
    memory = mmap.mmap(-1, size)
    view = memoryview(memory)
    done = 0
    while done < size:
        got = file.readinto(view[done : done + _BLOCK])  # type: ignore[attr-defined]
        if not got:
            raise ValueError("it was cut short while it was read")
        done += got
    return view.toreadonly()


def _broken(path: Path, why: str, kind: str) -> FileFormatError:
    return FileFormatError(f"{path} is damaged or incomplete ({why}): copy or build the {kind} again")
