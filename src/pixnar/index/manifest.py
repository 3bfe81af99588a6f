"""The manifest of a folder that is shipped: what is in it, with sizes and checksums, and what made it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import UNFINISHED, file_digest, write_json

NAME = "manifest.json"
SOURCES = ("docids", "lexical", "all")
"""What may rank documents: docids alone; also the lexical index; also the vectors of docids and of text."""

_NOT_SHIPPED = ("work", NAME)  # checkpoints of an unfinished fit, and the manifest itself


class OlderIndexError(FileFormatError):
    """An index of a release that wrote less than searching needs now."""


@dataclass(frozen=True)
class Kind:
    """What a manifest is of: its format, the keys without which it cannot be opened, and its words in errors."""

    format: str
    version: int
    keys: tuple[str, ...]
    noun: str
    maker: str  # the command that writes such a folder
    changing: tuple[str, ...] = ()  # folders that have checksums of their own and may be changed later
    oldest: int = 1  # version that is still read


INDEX = Kind(
    "pixnar-index",
    5,  # one lexical index: lexical.pixnar
    ("version", "files", "rule", "fusion", "depth", "expansion", "origin"),
    "index",
    "pixnar fit",
    ("docids/",),
    oldest=5,
)


def write_manifest(folder: Path, content: dict[str, Any], kind: Kind = INDEX) -> None:
    """Seal a folder: list every file with its size and checksum. Until this is written the index does not exist."""
    files = {
        str(path.relative_to(folder)): {"size": path.stat().st_size, "xxh3": file_digest(path)}
        for path in _files(folder)
    }
    whole = {"format": kind.format, "version": kind.version, **content, "files": files}
    write_json(folder / NAME, whole, indent=2, ensure_ascii=False, sort_keys=True)


def format_of(folder: Path) -> str | None:
    """The format that a folder's manifest names; None where there is no manifest, or one that cannot be read."""
    try:
        content = json.loads((folder / NAME).read_bytes())
    except (OSError, ValueError):
        return None
    found = content.get("format") if isinstance(content, dict) else None
    return found if isinstance(found, str) else None


def read_manifest(folder: Path, kind: Kind = INDEX) -> dict[str, Any]:
    """Read and check a manifest; the files it lists must be there in their size."""
    path, again = folder / NAME, f"copy or build the {kind.noun} again"
    if not path.exists():
        if (folder / "work").is_dir():
            raise FileFormatError(f"{folder} is not finished: run {kind.maker} again with the same output to go on")
        raise FileFormatError(
            f"{folder} is no {kind.noun} ({NAME} is missing): give the folder that {kind.maker} wrote"
        )
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} is damaged ({error}): {again}") from error
    if not isinstance(content, dict) or content.get("format") != kind.format:
        an = "an" if kind.noun[0] in "aeiou" else "a"
        raise FileFormatError(
            f"{path} is not the manifest of {an} {kind.noun}: give the folder that {kind.maker} wrote"
        )
    version = content.get("version", kind.version)
    if not isinstance(version, int) or not isinstance(content.get("files", {}), dict):
        raise FileFormatError(f"{path} is damaged (its version or files are of the wrong type): copy or build it again")
    if version > kind.version:
        raise FileFormatError(f"{path} has format {version}, this release reads up to {kind.version}: upgrade pixnar")
    if version < kind.oldest:
        raise OlderIndexError(
            f"{path} has format {version} of an earlier release: run {kind.maker} again with --overwrite"
        )
    missing = [key for key in kind.keys if key not in content]
    if missing:
        raise FileFormatError(f"{path} does not say {missing[0]!r}: {again}")
    for name, facts in content["files"].items():
        if name.startswith(kind.changing):
            continue
        try:
            size, wanted = (folder / name).stat().st_size, facts["size"]
        except OSError as error:
            raise FileFormatError(f"{folder / name} is missing: {again}") from error
        except (TypeError, KeyError) as error:
            raise FileFormatError(f"{path} is damaged (it says no size of {name}): {again}") from error
        if size != wanted:
            raise FileFormatError(f"{folder / name} has {size} bytes, not {wanted}: {again}")
    return content


def fusion_of(content: dict[str, Any], sources: str) -> dict[str, Any] | None:
    """The weights that were chosen for these sources; None: docids alone."""
    if sources not in SOURCES:
        raise PixnarError(f"sources {sources!r}: choose one of {', '.join(SOURCES)}")
    if sources == "all":
        return content["fusion"]  # type: ignore[no-any-return]
    if sources != "docids" and sources not in content.get("fusions", {}):
        raise FileFormatError(f"the index has no weights for {sources!r}: run pixnar fit again with --overwrite")
    return content.get("fusions", {}).get(sources)  # type: ignore[no-any-return]


def verify(folder: Path, kind: Kind = INDEX) -> int:
    """Check every checksum; how many files were read."""
    content = read_manifest(folder, kind)
    names = [name for name in content["files"] if not name.startswith(kind.changing)]
    check_files(folder, content, names, kind)
    return len(names)


def check_files(folder: Path, content: dict[str, Any], names: Iterable[str], kind: Kind = INDEX) -> None:
    """Check the checksums of some files that a manifest lists."""
    for name in names:
        if file_digest(folder / name) != content["files"].get(name, {}).get("xxh3"):
            raise FileFormatError(f"{folder / name} does not match its checksum: copy or build the {kind.noun} again")


def _files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        skipped = _NOT_SHIPPED if Path(where) == folder else ()
        folders[:] = [name for name in folders if name not in skipped and not name.endswith(UNFINISHED)]
        for name in sorted(names):
            path = Path(where) / name
            if (path.parent != folder or name not in _NOT_SHIPPED) and path.suffix != UNFINISHED:
                yield path
