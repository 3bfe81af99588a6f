"""Exported encoders in the cache folder: made once for every encoder and precision, opened by onnxruntime.

A graph has a folder of its own, named by the encoder's fingerprint. It is written aside and renamed, so whoever finds
it finds it whole; of several processes that make the same one, the first to finish puts it in place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import torch

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import link_or_copy, sync_folder
from pixnar.model.encoder import Encoder
from pixnar.model.export import export_onnx
from pixnar.runtime.encoder_folder import FP32, NOTE, choose_precision, read_note
from pixnar.runtime.quantize import quantize_onnx
from pixnar.runtime.query_encoder import QueryEncoder

_LEFT = 86_400  # seconds after which what a killed process left aside is removed


def exported(encoder: Encoder, folder: Path, precision: str = FP32) -> QueryEncoder:
    """The encoder for onnxruntime; exported into `folder` unless it is there already. Damaged files are replaced.

    Raises `PixnarError` where an encoder cannot be exported: a package is missing, or it cannot be traced.
    """
    path = folder / f"{encoder.fingerprint()}.{precision}.encoder"
    with contextlib.suppress(FileFormatError):
        return QueryEncoder.load(path, precision=precision)
    _sweep(folder)
    aside = Path(tempfile.mkdtemp(dir=folder, prefix=f".{path.name}.", suffix=".part"))
    try:
        made = aside / "made"
        if precision == FP32:
            _export(encoder, made)
        else:
            _quantize(encoder, folder, made, precision)
        _put(made, path, aside / "old")
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return QueryEncoder.load(path, precision=precision)


def _export(encoder: Encoder, target: Path) -> None:
    try:
        with torch.random.fork_rng(devices=[]):  # whether a graph was there must not change what is drawn later
            export_onnx(encoder, target)
    except (RuntimeError, ValueError, TypeError) as error:  # of torch's exporter, for operators that it does not know
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PixnarError(f"cannot export {encoder.name}: {reason}; choose an encoder that can be traced") from error


def _quantize(encoder: Encoder, folder: Path, target: Path, precision: str) -> None:
    exported(encoder, folder)
    source = folder / f"{encoder.fingerprint()}.{FP32}.encoder"
    target.mkdir()
    for name in (*read_note(source).files, NOTE):
        link_or_copy(source / name, target / name)
    quantize_onnx(target, precision)
    choose_precision(target, precision)


def _put(made: Path, path: Path, old: Path) -> None:
    """Rename into place; a folder that is there is damaged, or was made by another process in the meantime."""
    with contextlib.suppress(OSError):
        if path.exists() and not _sound(path):
            os.rename(path, old)
        os.rename(made, path)
        sync_folder(path.parent)


def _sound(path: Path) -> bool:
    try:
        QueryEncoder.load(path)
    except FileFormatError:
        return False
    return True


def _sweep(folder: Path) -> None:
    for left in folder.glob(".*.encoder.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT:
                shutil.rmtree(left, ignore_errors=True)
