"""What a training run reports: one JSON line per report, TensorBoard if asked for, and a picture of it all.

Keys the picture knows: `loss` and its parts `l1`, `l2`, `l3`, `ranking`; `log_z`, the mean of |log Z|; `dev_mrr10`,
measured on dev. Rows may have any of them, and others, which are kept and not drawn.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

from pixnar.base.errors import FileFormatError, MissingExtraError
from pixnar.base.storage import atomic_write

_FILE = "log.jsonl"
_STEEP = 10.0  # a curve that falls by more is drawn on a logarithmic scale
_PARTS = {"loss": "#222222", "l1": "#3b6ea8", "l2": "#b8643c", "l3": "#4c8c4a", "ranking": "#8a5a9e"}


class TrainingLog:
    """Appends rows to ``log.jsonl`` in a folder, each on disk before the next step.

    Without `resume` the log begins anew. With `resume=n` rows up to step n are kept and later ones forgotten, so that
    the log of a run that was killed and resumed reads like that of one that was not; its clock goes on, too.

    >>> import tempfile
    >>> with TrainingLog(folder := tempfile.mkdtemp()) as log:
    ...     log.write(1, loss=2.5)
    >>> [row["loss"] for row in read(folder)]
    [2.5]
    """

    def __init__(self, folder: str | os.PathLike[str], tensorboard: bool = False, *, resume: int | None = None) -> None:
        home = Path(folder)
        self._writer = _summary_writer(home, resume) if tensorboard else None
        home.mkdir(parents=True, exist_ok=True)
        kept = [] if resume is None else [row for row in _rows(home / _FILE) if row["step"] <= resume]
        with atomic_write(home / _FILE) as file:
            file.write("".join(json.dumps(row) + "\n" for row in kept).encode())
        self._file = open(home / _FILE, "a", encoding="utf-8")  # noqa: SIM115
        self._started = time.monotonic() - (kept[-1]["seconds"] if kept else 0.0)

    @property
    def seconds(self) -> float:
        """How long the run has taken, what came before a resume included."""
        return time.monotonic() - self._started

    def write(self, step: int, **figures: SupportsFloat) -> None:
        """Append a row; a figure that is no number (NaN, infinite) is written as null."""
        row: dict[str, Any] = {"step": step, "seconds": round(self.seconds, 3)}
        row |= {key: _plain(value) for key, value in figures.items()}
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        if self._writer is not None:
            for key, value in figures.items():
                self._writer.add_scalar(key, float(value), step)
            self._writer.flush()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a log; a last one that a killed process has left half-written is not among them."""
    path = Path(folder) / _FILE
    if not path.is_file():
        raise FileFormatError(f"there is no {path}: give the folder of a training run")
    return _rows(path)


def plot(folder: str | os.PathLike[str], png: str | os.PathLike[str]) -> None:
    """Draw the parts of the loss, |log Z| and MRR@10 on dev against the step, and save the picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a plot", "plot") from error
    rows = read(folder)
    figure = Figure(figsize=(13, 4), layout="constrained")
    losses, normal, dev = figure.subplots(1, 3)
    for key, color in _PARTS.items():
        _curve(losses, rows, key, color)
    losses.set(ylabel="loss", title="Loss and its parts")
    _curve(normal, rows, "log_z", _PARTS["l1"])
    normal.set(ylabel="mean |log Z|", title="Self-normalisation: |log Z|")
    _dev_curve(dev, rows)
    dev.set(ylabel="MRR@10", title="Dev")
    for axis in (losses, normal, dev):
        _finish(axis, from_zero=axis is not dev)
    if losses.lines:
        losses.legend(frameon=False)
    figure.savefig(os.fspath(png), dpi=150, format="png")


def _summary_writer(home: Path, resume: int | None) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("writing for TensorBoard", "tensorboard") from error
    return SummaryWriter(str(home / "tensorboard"), purge_step=0 if resume is None else resume + 1)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Whole rows, up to the first that is not."""
    rows: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError), open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if not line.endswith("\n"):
                break
            rows.append({"step": int(row["step"]), "seconds": float(row["seconds"]), **row})
    return rows


def _plain(value: SupportsFloat) -> float | None:
    number = value if isinstance(value, int) else float(value)  # a NumPy or Torch scalar becomes ours
    return number if math.isfinite(number) else None


def _series(rows: list[dict[str, Any]], key: str) -> tuple[Any, Any]:
    found = [(row["step"], math.nan if row[key] is None else row[key]) for row in rows if key in row]
    table = np.array(found, float).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _curve(axis: Any, rows: list[dict[str, Any]], key: str, color: str) -> None:
    """The values, and where they are many also their running mean."""
    steps, values = _series(rows, key)
    if not len(steps):
        return
    width = len(values) // 40
    if width < 2:
        axis.plot(steps, values, color=color, lw=1.5, label=key)
        return
    axis.plot(steps, values, color=color, lw=0.5, alpha=0.3)
    known = np.isfinite(values)
    window = np.ones(width)
    sums = np.convolve(np.where(known, values, 0.0), window, "same")
    counts = np.convolve(known, window, "same")
    means = np.divide(sums, counts, out=np.full(len(values), math.nan), where=counts > 0.5)
    axis.plot(steps, means, color=color, lw=1.8, label=key)


def _dev_curve(axis: Any, rows: list[dict[str, Any]]) -> None:
    steps, values = _series(rows, "dev_mrr10")
    if not np.isfinite(values).any():
        return
    axis.plot(steps, values, color=_PARTS["l2"], marker="o", ms=4)
    best = int(np.nanargmax(values))
    note = f"best {values[best]:.3f} at step {steps[best]:,.0f}"
    axis.plot(steps[best], values[best], "o", ms=9, mfc="none", color="black", label=note)
    axis.legend(loc="lower right", frameon=False)


def _finish(axis: Any, *, from_zero: bool) -> None:
    values = np.concatenate([np.zeros(0), *(line.get_ydata() for line in axis.lines)])
    values = values[np.isfinite(values)]
    if not len(values):
        axis.text(0.5, 0.5, "not logged", ha="center", va="center", transform=axis.transAxes, color="gray")
    elif from_zero and values.max() > _STEEP * np.median(values) > 0:
        axis.set_yscale("log")  # a first log Z² of hundreds would press all else to the ground
    elif from_zero and values.min() >= 0:
        axis.set_ylim(bottom=0)
    axis.set_xlabel("step")
    axis.set_xlim(left=0)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
