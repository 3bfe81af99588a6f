"""Checkpoints that survive a kill at any moment: a folder per step, whole or not there at all. Never pickle.

``step-000123/`` holds ``tensors.safetensors`` and ``state.json``: a format version, the checksum of the tensors, and
whatever JSON the training loop wants back. ``best.json`` beside it names the best step so far. Folders whose names
begin with a dot are work in progress, or what a killed process left of it.

Of a head in shards every process writes its own rows, ``rows-00000-of-00004.safetensors`` …, and the first process all
the rest; ``state.json`` has the checksum of each, and the folder gets its name when all are on disk. Whoever reads it
takes the rows it wants, however many processes wrote them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import atomic_write, file_digest, sync_folder
from pixnar.model.process_group import SINGLE, ProcessGroup

__all__ = ["RowShard", "best", "best_step", "flatten", "latest", "load", "mark_best", "restore", "save", "step_of"]

Folder = str | os.PathLike[str]

_FORMAT = 2  # with files of rows; without them 1 is written, which earlier releases read
_TENSORS, _STATE, _BEST = "tensors.safetensors", "state.json", "best.json"
_NAME = re.compile(r"(?:step-(\d+)|\.step-(\d+)\.old)")  # `.old`: the one that is being replaced
_log = logging.getLogger("pixnar")


class RowShard(NamedTuple):
    """The rows that a process holds, of tensors with one row per token; and the processes that hold the others.

    Which tensors those are, their names decide; of them, those without dimensions are the same in all processes.
    """

    first: int
    last: int
    group: ProcessGroup
    belongs: Callable[[str], bool]


def save(
    folder: Folder,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    *,
    keep: int = 2,
    rows: RowShard | None = None,
) -> Path:
    """Write the checkpoint of a step; of it and earlier ones only the last `keep` and the best are kept.

    `state` is anything JSON can say. A checkpoint of the same step is replaced; those of later steps stay. With `rows`
    all processes call this at the same step, each with its own rows.
    """
    home = Path(folder)
    target, aside = home / _name(step), home / f".{_name(step)}.part"
    group = SINGLE if rows is None else rows.group
    try:
        if group.first:
            home.mkdir(parents=True, exist_ok=True)
            _tidy(home)
            aside.mkdir()
        shards: list[dict[str, Any]] = []
        if rows is not None and group.size > 1:
            group.wait()
            shards = group.collect(_write_rows(aside, tensors, rows))
            tensors = {name: tensor for name, tensor in tensors.items() if not rows.belongs(name)}
        if group.first:
            _write(aside, step, tensors, state, shards)
            if target.exists():
                target.rename(home / f".{target.name}.old")
            aside.rename(target)
            sync_folder(home)
            _tidy(home)
            _drop_early(home, step, keep)
        group.wait()
    except (OSError, SafetensorError) as error:
        if group.size == 1:
            shutil.rmtree(aside, ignore_errors=True)
        why = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())
        raise PixnarError(f"cannot write the checkpoint {target}: {why}; make room or choose another place") from error
    return target


def load(
    path: Folder, *, verify: bool = True, rows: RowShard | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the state of a checkpoint; `verify` checks the tensors' checksum.

    With `rows` only those rows are read, from whichever files have them; without, all.
    """
    where = Path(path)
    content = _read_state(where, verify=verify)
    shards: list[dict[str, Any]] = content.get("shards", [])
    try:
        if rows is None and not shards:
            tensors = safetensors.torch.load_file(where / _TENSORS)
        else:
            wanted = (0, max(shard["last"] for shard in shards)) if rows is None else (rows.first, rows.last)
            split = None if rows is None or shards else rows.belongs
            tensors = _read_rows(where / _TENSORS, (0, *wanted), split)
            parts: dict[str, list[Tensor]] = {}
            for shard in shards:
                low, high = max(wanted[0], shard["first"]), min(wanted[1], shard["last"])
                if low < high:
                    place = where / shard["file"]
                    for name, part in _read_rows(place, (shard["first"], low, high), lambda _: True).items():
                        parts.setdefault(name, []).append(part)
            tensors |= {name: some[0] if some[0].dim() == 0 else torch.cat(some) for name, some in parts.items()}
    except (OSError, SafetensorError) as error:
        raise _broken(where, f"its tensors cannot be read: {error}") from error
    state: dict[str, Any] = content["state"]
    return tensors, state


def latest(folder: Folder) -> Path | None:
    """The last whole checkpoint, or None; a damaged one is skipped with a warning."""
    for path in _checkpoints(Path(folder)):
        try:
            _read_state(path, verify=True)
        except _DamagedError as error:
            if path.exists():  # or it has just been deleted by the process that trains
                _log.warning("skipped: %s", error)
            continue
        return path
    return None


def best(folder: Folder) -> Path | None:
    """The checkpoint marked best, or None if none is; where it is damaged, the last whole one, with a warning."""
    step = best_step(folder)
    if step is None:
        return None
    try:
        path = Path(folder) / _name(step)
        path = path if path.exists() else path.with_name(f".{path.name}.old")
        _read_state(path, verify=True)
    except _DamagedError as error:
        _log.warning("the best checkpoint is skipped: %s", error)
        return latest(folder)
    return path


def step_of(path: Folder) -> int:
    """The step of a checkpoint's folder."""
    found = _NAME.fullmatch(Path(path).name)
    if found is None:
        raise PixnarError(f"{path} is not the folder of a checkpoint: its name should be such as step-000123")
    return int(found[1] or found[2])


def mark_best(folder: Folder, step: int) -> None:
    """Name the checkpoint of a step, already saved, the best; it is not deleted while it is."""
    home = Path(folder)
    if not (home / _name(step)).is_dir():
        raise PixnarError(f"there is no checkpoint of step {step} in {home} to mark as the best; save it first")
    with atomic_write(home / _BEST) as file:
        file.write(json.dumps({"format": 1, "step": step}).encode())


def best_step(folder: Folder) -> int | None:
    """The step marked best, or None."""
    try:
        step = json.loads((Path(folder) / _BEST).read_bytes())["step"]
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        step = None
    if not isinstance(step, int):
        _log.warning("%s is damaged: no checkpoint counts as the best", Path(folder) / _BEST)
        return None
    return step


def _write(
    aside: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], shards: list[dict[str, Any]]
) -> None:
    facts = _write_tensors(aside / _TENSORS, tensors)
    text = json.dumps(dict(state), ensure_ascii=False)
    content = {
        "format": 2 if shards else 1,
        "step": step,
        **facts,
        **({"shards": shards} if shards else {}),
        "state_xxh3": xxhash.xxh3_128_hexdigest(text.encode()),
        "state": json.loads(text),
    }
    with open(aside / _STATE, "wb") as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=1).encode())
        file.flush()
        os.fsync(file.fileno())
    sync_folder(aside)


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write a file to the disk; its size and checksum."""
    safetensors.torch.save_file(dict(_apart(tensors)), path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    return {"size": path.stat().st_size, "xxh3": file_digest(path)}


def _write_rows(aside: Path, tensors: Mapping[str, Tensor], rows: RowShard) -> dict[str, Any]:
    """Write what this process has; where that is, and its size and checksum."""
    name = f"rows-{rows.group.rank:05d}-of-{rows.group.size:05d}.safetensors"
    facts = _write_tensors(aside / name, {name: part for name, part in tensors.items() if rows.belongs(name)})
    return {"file": name, "first": rows.first, "last": rows.last, **facts}


def _read_rows(path: Path, piece: tuple[int, int, int], split: Callable[[str], bool] | None) -> dict[str, Tensor]:
    """The tensors of a file; of those that are split, rows `low` to `high`, where the file's own begin at `first`."""
    first, low, high = piece
    out: dict[str, Tensor] = {}
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118  # it is no dict
            part = file.get_slice(name)
            cut = split is not None and split(name) and bool(part.get_shape())
            out[name] = part[low - first : high - first] if cut else file.get_tensor(name)
    return out


def _apart(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Contiguous tensors on the CPU, no two in the same memory: safetensors takes no others."""
    seen = set()
    for name, tensor in tensors.items():
        ready = tensor.detach().cpu().contiguous()
        place = ready.untyped_storage().data_ptr()
        yield name, ready.clone() if place in seen else ready
        seen.add(place)


class _DamagedError(FileFormatError):
    """A checkpoint that is not whole; an earlier one may be."""


def _read_state(where: Path, *, verify: bool) -> dict[str, Any]:
    """What state.json says, if it and the tensors beside it are whole; without `verify` only their size is checked."""
    try:
        content = json.loads((where / _STATE).read_bytes())
        if content["format"] > _FORMAT:
            raise FileFormatError(
                f"{where} has checkpoint format {content['format']}, this release reads up to {_FORMAT}: upgrade pixnar"
            )
        text = json.dumps(content["state"], ensure_ascii=False)
        if xxhash.xxh3_128_hexdigest(text.encode()) != content["state_xxh3"]:
            raise _broken(where, f"{_STATE} does not match its checksum")
        for part in [{"file": _TENSORS, **content}, *content.get("shards", [])]:
            name = part["file"]
            size = (where / name).stat().st_size
            if size != part["size"]:
                raise _broken(where, f"{name} should have {part['size']} bytes and has {size}")
            if verify and file_digest(where / name) != part["xxh3"]:
                raise _broken(where, f"{name} does not match its checksum")
    except OSError as error:
        raise _broken(where, f"{Path(error.filename or where).name}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(where, f"{_STATE} cannot be read") from error
    found: dict[str, Any] = content
    return found


def _broken(where: Path, why: str) -> _DamagedError:
    return _DamagedError(f"{where} is damaged or incomplete ({why}); train on from an earlier checkpoint")


def _name(step: int) -> str:
    return f"step-{step:06d}"


def _checkpoints(home: Path) -> list[Path]:
    """Folders of checkpoints, the last step first; of one step the new before the old."""
    if not home.is_dir():
        return []
    found = [path for path in home.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (-step_of(path), path.name.startswith(".")))


def _tidy(home: Path) -> None:
    """Clear away what a killed process has left, and put back what it was about to replace."""
    for path in home.glob(".step-*.part"):
        shutil.rmtree(path)
    for path in home.glob(".step-*.old"):
        target = home / _name(step_of(path))
        if target.exists():
            _remove(path)
        else:
            path.rename(target)


def _drop_early(home: Path, step: int, keep: int) -> None:
    marked = best_step(home)
    whole = 0
    for path in _checkpoints(home):
        if step_of(path) > step:
            continue
        if whole < keep:
            with contextlib.suppress(_DamagedError):
                _read_state(path, verify=False)
                whole += 1
        elif step_of(path) != marked:
            _remove(path)


def _remove(path: Path) -> None:
    """Out of sight first: a half-deleted checkpoint should not look like a damaged one."""
    aside = path.with_name(f".{_name(step_of(path))}.part")
    path.rename(aside)
    shutil.rmtree(aside)


_TENSOR, _TUPLE, _ITEMS = "$tensor", "$tuple", "$items"


def flatten(state: Any, prefix: str = "") -> tuple[dict[str, Tensor], Any]:
    """The tensors of a state_dict by name, and the rest as JSON that says where they stood.

    Takes dicts with text or number keys, lists, tuples, tensors and what JSON knows: the state_dict of any optimizer,
    scheduler or scaler. Names begin with `prefix`, so that several states fit into one checkpoint.

    >>> flatten({"lr": 0.1, "betas": (0.9, 0.999)})
    ({}, {'lr': 0.1, 'betas': {'$tuple': [0.9, 0.999]}})
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _down(state, prefix, tensors)


def restore(tensors: Mapping[str, Tensor], content: Any) -> Any:
    """The state again that `flatten` took apart; `tensors` may hold others beside its own."""
    if isinstance(content, list):
        return [restore(tensors, value) for value in content]
    if not isinstance(content, dict):
        return content
    if _TENSOR in content:
        name = content[_TENSOR]
        if name not in tensors:
            raise FileFormatError(f"the state names a tensor {name!r} that is not there; take an earlier checkpoint")
        return tensors[name]
    if _TUPLE in content:
        return tuple(restore(tensors, value) for value in content[_TUPLE])
    if _ITEMS in content:
        return {key: restore(tensors, value) for key, value in content[_ITEMS]}
    return {key: restore(tensors, value) for key, value in content.items()}


def _down(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value
        return {_TENSOR: name}
    if isinstance(value, dict):
        below = [(key, _down(part, _join(name, key), tensors)) for key, part in value.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(below)
        if all(isinstance(key, str | int) for key in value):
            return {_ITEMS: [[key, part] for key, part in below]}
    if isinstance(value, list | tuple):
        parts = [_down(part, _join(name, i), tensors) for i, part in enumerate(value)]
        return {_TUPLE: parts} if isinstance(value, tuple) else parts
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name or 'state'} is a {type(value).__name__}, which JSON and tensors cannot say")


def _join(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
