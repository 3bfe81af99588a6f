"""The manifest of an index: what is in the folder, with sizes and checksums, and the recipe that made it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pixnar.errors import FileFormatError, PixnarError
from pixnar.storage import atomic_write, file_digest

NAME = "manifest.json"
_FORMAT, _VERSION = "pixnar-index", 2  # 2: served rows, and an encoder that needs no torch
_KEYS = ("version", "files", "rule", "fusion", "depth", "expansion")  # without which an index cannot be opened
UNFINISHED = ".part"  # how the names of files end that were being written when their process was killed
SOURCES = ("docids", "evidence", "all")
"""What may rank documents: their docids alone; also what else the model's phrases say for them; also dense and BM25."""

_NOT_SHIPPED = ("work", NAME)  # checkpoints of an unfinished fit, and the manifest itself


class OlderIndexError(FileFormatError):
    """An index of a release that wrote less than searching needs now."""


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Seal a folder: list every file with its size and checksum. Until this is written the index does not exist."""
    files = {
        str(path.relative_to(folder)): {"size": path.stat().st_size, "xxh3": file_digest(path)}
        for path in _files(folder)
    }
    whole = {"format": _FORMAT, "version": _VERSION, **content, "files": files}
    with atomic_write(folder / NAME) as file:
        file.write(json.dumps(whole, indent=2, ensure_ascii=False, sort_keys=True).encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check a manifest; the files it lists must be there in their size."""
    path = folder / NAME
    if not path.exists():
        if (folder / "work").is_dir():
            raise FileFormatError(f"{folder} is not finished: run pixnar fit again with the same output to go on")
        raise FileFormatError(f"{folder} is no index ({NAME} is missing): give the folder that pixnar fit wrote")
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} is damaged ({error}): copy or build the index again") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise FileFormatError(f"{path} is not the manifest of an index: give the folder that pixnar fit wrote")
    if not isinstance(content.get("version", _VERSION), int) or not isinstance(content.get("files", {}), dict):
        raise FileFormatError(f"{path} is damaged (its version or files are of the wrong type): copy or build it again")
    if content.get("version", _VERSION) > _VERSION:
        raise FileFormatError(
            f"{path} has format {content['version']}, this release reads up to {_VERSION}: upgrade pixnar"
        )
    if content.get("version", _VERSION) < _VERSION:
        raise OlderIndexError(
            f"{path} has format {content['version']} of an earlier release: run pixnar fit again with --overwrite"
        )
    missing = [key for key in _KEYS if key not in content]
    if missing:
        raise FileFormatError(f"{path} does not say {missing[0]!r}: copy or build the index again")
    for name, facts in content["files"].items():
        if _may_change(name):
            continue
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            raise FileFormatError(f"{folder / name} is missing: copy or build the index again") from error
        if size != facts["size"]:
            raise FileFormatError(
                f"{folder / name} has {size} bytes, not {facts['size']}: copy or build the index again"
            )
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


def verify(folder: Path) -> int:
    """Check every checksum; how many files were read."""
    content = read_manifest(folder)
    checked = 0
    for name, facts in content["files"].items():
        if _may_change(name):
            continue  # the docid table has checksums of its own and may have been changed since
        if file_digest(folder / name) != facts["xxh3"]:
            raise FileFormatError(f"{folder / name} does not match its checksum: copy or build the index again")
        checked += 1
    return checked


def _may_change(name: str) -> bool:
    return name.startswith("docids/")


def _files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        skipped = _NOT_SHIPPED if Path(where) == folder else ()
        folders[:] = [name for name in folders if name not in skipped and not name.endswith(UNFINISHED)]
        for name in sorted(names):
            path = Path(where) / name
            if (path.parent != folder or name not in _NOT_SHIPPED) and path.suffix != UNFINISHED:
                yield path
