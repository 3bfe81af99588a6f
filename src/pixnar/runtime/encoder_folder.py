"""The folder of a query encoder: a tokenizer, one graph per precision, and a note that is written last."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import atomic_write, file_digest, sync_folder

NOTE, TOKENIZER = "encoder.json", "tokenizer.json"
FP32, INT8, INT8_BLOCKS = "fp32", "int8", "int8-blocks"
INPUTS, OUTPUTS = ("input_ids", "attention_mask"), ("x", "pooled")

_FORMAT, _VERSION = "pixnar-encoder", 1
_AGAIN = "copy or export the encoder again"


@dataclass(frozen=True)
class Note:
    """What `encoder.json` says: the shape of the vectors, how texts are cut, the graphs, and a checksum per file."""

    design: str
    slots: int
    width: int
    pooled_width: int
    pad_id: int
    max_pieces: int
    precision: str = FP32  # of the graph that is loaded when nothing else is asked for
    graphs: dict[str, str] = field(default_factory=dict)  # file of each precision
    files: dict[str, dict[str, Any]] = field(default_factory=dict)  # size and XXH3-128

    def files_of(self, precision: str) -> list[str]:
        """The files of one precision; a graph beyond two gigabytes has its weights in a second one."""
        graph = self.graphs[precision]
        return [name for name in (graph, data_name(graph)) if name in self.files]


def graph_name(precision: str) -> str:
    """The file of a graph."""
    return "encoder.onnx" if precision == FP32 else f"encoder-{precision}.onnx"


def data_name(graph: str) -> str:
    """The file of the weights of a graph that is too large for one file."""
    return f"{graph}.data"


def read_note(folder: Path) -> Note:
    """Read and check `encoder.json`."""
    path = folder / NOTE
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise FileFormatError(f"cannot read {path}: {reason}; give a folder that export_onnx wrote") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise FileFormatError(f"{path} is no query encoder: give a folder that export_onnx wrote")
    version = content.get("version")
    if not isinstance(version, int):
        raise FileFormatError(f"{path} does not say its version: {_AGAIN}")
    if version > _VERSION:
        raise FileFormatError(f"{path} has format {version}, this release reads up to {_VERSION}: upgrade pixnar")
    try:
        note = Note(**{name: content[name] for name in Note.__dataclass_fields__})
        names = [*note.files, *note.graphs.values()]
        sizes = [note.slots, note.width, note.pooled_width, note.max_pieces, *(f["size"] for f in note.files.values())]
        sound = all(isinstance(size, int) for size in [*sizes, note.pad_id]) and note.precision in note.graphs
        sound = sound and all(Path(name).name == name for name in names) and {TOKENIZER} <= note.files.keys()
        sound = sound and all(name in note.files for name in note.graphs.values())
    except (KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path} is incomplete or damaged: {_AGAIN}") from error
    if not sound:
        raise FileFormatError(f"{path} is incomplete or damaged: {_AGAIN}")
    return note


def check_files(folder: Path, note: Note, names: list[str]) -> None:
    """Raise unless these files are there as they were written."""
    for name in names:
        path, facts = folder / name, note.files[name]
        try:
            size = path.stat().st_size
            sound = size == facts["size"] and file_digest(path) == facts["xxh3"]
        except (OSError, KeyError) as error:
            raise FileFormatError(f"{path} is missing or cannot be read: {_AGAIN}") from error
        if size != facts["size"]:
            raise FileFormatError(f"{path} has {size} bytes, not {facts['size']}: {_AGAIN}")
        if not sound:
            raise FileFormatError(f"{path} does not match its checksum: {_AGAIN}")


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A folder to write files into; they are moved to `folder` when the block ends well, else removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder, prefix=".", suffix=".part"))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield aside
        for path in sorted(aside.iterdir(), key=lambda path: path.name == NOTE):  # the note last
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(path, folder / path.name)
        sync_folder(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_note(folder: Path, note: Note) -> None:
    """Write `encoder.json` for the files that are there."""
    names = [TOKENIZER, *note.graphs.values(), *(data_name(graph) for graph in note.graphs.values())]
    there = [name for name in names if (folder / name).exists()]
    facts = {name: {"size": (folder / name).stat().st_size, "xxh3": file_digest(folder / name)} for name in there}
    content = {"format": _FORMAT, "version": _VERSION, "inputs": INPUTS, "outputs": OUTPUTS}
    with atomic_write(folder / NOTE) as file:
        file.write(json.dumps(content | asdict(replace(note, files=facts)), indent=2, sort_keys=True).encode())


def choose_precision(folder: str | os.PathLike[str], precision: str, *, keep_others: bool = False) -> None:
    """Say which graph is to be loaded; the others are removed, for an index is shipped with one."""
    where = Path(folder)
    note = read_note(where)
    if precision not in note.graphs:
        raise PixnarError(f"{where} has no graph in {precision}: it has {', '.join(sorted(note.graphs))}")
    others = [] if keep_others else [other for other in note.graphs if other != precision]
    kept = {name: graph for name, graph in note.graphs.items() if name not in others}
    write_note(where, replace(note, precision=precision, graphs=kept))
    for other in others:
        for name in note.files_of(other):
            (where / name).unlink(missing_ok=True)


def _unwritable(folder: Path, error: OSError) -> PixnarError:
    return PixnarError(f"cannot write {folder}: {error.strerror or error}; make room there or choose another place")
