"""Searching through torch, on a GPU or any other device: the same encoder as in training, the same rows as served."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, MissingExtraError, PixnarError
from pixnar.index.files import MODEL
from pixnar.runtime import HeadRows, TextEncoder
from pixnar.search.query import Head

try:
    import torch
    from torch import Tensor

    from pixnar.model.nar import Nar
except ImportError as error:
    raise MissingExtraError("searching on a device", "train") from error

Floats = NDArray[np.float32]
_ROWS_AT_ONCE = 1 << 20


def model_of(folder: Path) -> Nar:
    """The model of an index as torch knows it, which `serve.keep_model` keeps."""
    if not (folder / MODEL).is_dir():
        raise FileFormatError(f"{folder} has no {MODEL}/: fit it again with --set serve.keep_model=true")
    return Nar.from_pretrained(folder / MODEL)


def encoder_on(device: str, folder: Path) -> TextEncoder:
    """The index's model on a device."""
    return model_of(folder).to(_device(device))


def rows_on(device: str, rows: HeadRows) -> Head:
    """The served rows on a device."""
    return TorchHead(rows, _device(device))


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise PixnarError(f"cannot use the device {name!r} ({reason}): give cpu, cuda, cuda:1, mps …") from error
    return device


class TorchHead:
    """Rows as they are served; logits of int8 rows with up to 1,040 numbers are the native core's, to the last bit."""

    def __init__(self, rows: HeadRows, device: torch.device) -> None:
        self.count, self.bias, self._device = rows.count, rows.bias, device
        self._rows = torch.from_numpy(rows.numbers()).to(device)
        scaled = rows.format == "int8"
        self._scales = torch.from_numpy(np.array(rows.scales)).to(device) if scaled else None
        self._bias = None if rows.bias is None else torch.from_numpy(np.array(rows.bias)).to(device)

    @torch.inference_mode()
    def logits(self, x: Floats, ids: NDArray[np.integer] | None = None) -> Floats:
        """See `Head`."""
        vectors = torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(self._device)
        wanted = None if ids is None else torch.from_numpy(np.asarray(ids, np.int64)).to(self._device)
        size = self.count if wanted is None else len(wanted)
        parts = []
        for begin in range(0, size, _ROWS_AT_ONCE):
            end = min(begin + _ROWS_AT_ONCE, size)
            parts.append(self._part(vectors, slice(begin, end) if wanted is None else wanted[begin:end]))
        none = torch.zeros((len(vectors), 0), device=self._device)
        logits: Floats = torch.cat([*parts, none], 1).cpu().numpy()
        return logits

    def _part(self, x: Tensor, some: slice | Tensor) -> Tensor:
        rows = self._rows[some].float()
        if self._scales is None:
            logits = x @ rows.t()
        else:  # whole numbers below 2^24: their sums are exact
            scale = x.abs().amax(1) / 127
            whole = (x / torch.where(scale > 0, scale, 1.0)[:, None]).round().clamp(-127, 127)
            logits = (whole @ rows.t()) * (self._scales[some] * scale[:, None])
        return logits if self._bias is None else logits + self._bias[some]
