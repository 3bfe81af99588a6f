"""Rows of floats to bytes and back, and which instructions the kernels use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pixnar import _native

Format = Literal["int8", "float32", "float16", "bfloat16", "int4"]
FORMATS: tuple[Format, ...] = get_args(Format)
_MOST = {"int8": 127, "int4": 7}  # the largest whole number of a format with scales
_BLOCK = 64  # bytes of an int4 row that belong together

Floats = NDArray[np.float32]


def has_scales(format: Format) -> bool:
    """Whether rows are whole numbers with a scale each."""
    return format in _MOST


def stride_of(format: Format, dim: int) -> int:
    """Bytes from row to row."""
    return _native.head_stride(format, dim)


def encode(rows: Floats, format: Format) -> tuple[NDArray[np.uint8], Floats | None]:
    """Rows [n, d] as bytes [n, stride] and their scales [n], if the format has any."""
    if not np.isfinite(rows).all():
        raise ValueError("phrase rows have numbers that are not finite")
    out = np.zeros((len(rows), stride_of(format, rows.shape[1])), np.uint8)
    if format not in _MOST:
        raw = _float_bytes(rows, format)
        out[:, : raw.shape[1]] = raw
        return out, None
    most = np.float32(_MOST[format])
    scales = np.abs(rows).max(1) / most
    safe = np.where(scales > 0, scales, np.float32(1))[:, None]
    whole = np.where(scales[:, None] > 0, np.clip(np.rint(rows / safe), -most, most), 0).astype(np.int8)
    if format == "int8":
        out[:, : rows.shape[1]] = whole.view(np.uint8)
        return out, scales
    halves = np.zeros((len(rows), 2 * out.shape[1]), np.uint8)
    halves[:, : rows.shape[1]] = whole.view(np.uint8) & 15
    blocks = halves.reshape(len(rows), -1, 2, _BLOCK)
    out[:] = (blocks[:, :, 0] | blocks[:, :, 1] << 4).reshape(out.shape)
    return out, scales


def decode(raw: NDArray[np.uint8], scales: Floats | None, format: Format, dim: int) -> Floats:
    """What `encode` made, as floats [n, dim]."""
    if format == "float32":
        return np.ascontiguousarray(raw.view(np.float32)[:, :dim])
    if format == "float16":
        return raw.view(np.float16)[:, :dim].astype(np.float32)
    if format == "bfloat16":
        return (raw.view(np.uint16)[:, :dim].astype(np.uint32) << 16).view(np.float32)
    assert scales is not None
    if format == "int8":
        return raw.view(np.int8)[:, :dim].astype(np.float32) * scales[:, None]
    blocks = raw.reshape(len(raw), -1, 1, _BLOCK)
    halves = np.concatenate([blocks & 15, blocks >> 4], axis=2).reshape(len(raw), 2 * raw.shape[1])[:, :dim]
    return ((halves ^ 8).astype(np.float32) - 8) * scales[:, None]


def _float_bytes(rows: Floats, format: Format) -> NDArray[np.uint8]:
    if format == "float32":
        return np.ascontiguousarray(rows).view(np.uint8)
    if format == "float16":
        with np.errstate(over="ignore"):
            small = rows.astype(np.float16)
        if not np.isfinite(small).all():
            raise ValueError("phrase rows have numbers beyond 65504: float16 cannot hold them")
        return small.view(np.uint8)
    bits = np.ascontiguousarray(rows).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view(np.uint8)  # half to even


def head_paths() -> list[str]:
    """The paths this machine can run, best first; the first one is used."""
    return _native.head_paths()


@contextlib.contextmanager
def head_path(name: str) -> Iterator[None]:
    """Use another path for a while, in the whole process: for tests and comparisons."""
    _native.use_head_path(name)
    try:
        yield
    finally:
        _native.use_head_path("")
