"""Export: encoder and slots as one ONNX graph with the tokenizer; exported encoders kept in the cache folder.

An encoder may also go alone: it has no slots, and its vector of the text is x_0.

A graph has a folder of its own, named by the encoder's fingerprint. It is written aside and renamed, so whoever finds
it finds it whole; of several processes that make the same one, the first to finish puts it in place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from pixnar.base.errors import FileFormatError, MissingExtraError, PixnarError
from pixnar.base.storage import link_or_copy, sync_folder
from pixnar.model.encoder import Encoder
from pixnar.model.nar import MaskSlots, MlpSlots, Nar
from pixnar.runtime.encoder_folder import (
    FP32,
    INPUTS,
    NOTE,
    OUTPUTS,
    TOKENIZER,
    Note,
    choose_precision,
    data_name,
    graph_name,
    read_note,
    write_note,
    writing,
)
from pixnar.runtime.quantize import quantize_onnx
from pixnar.runtime.query_encoder import QueryEncoder

_OPSET = 17  # the first with layer norms; later ones were no faster
_TRACED = ("a text of some words", "another", "and the third of them is the one that is a little longer than the rest")
_CHECKED = ("", "one", *_TRACED, "a long text that is cut at the end " * 100)
_NEAR = 1e-3  # how far vectors may be from torch's, for lengths around one; float noise is a hundredth of it


PLAIN = "plain"  # the design of an encoder without slots


class _EncoderWithSlots(nn.Module):
    """Encoder and slots, if there are any; the phrase head stays outside."""

    def __init__(self, encoder: Encoder, slots: MlpSlots | MaskSlots | None) -> None:
        super().__init__()
        self.encoder, self.slots = encoder, slots

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        pooled = self.encoder(ids, mask)
        if self.slots is None:
            x = pooled.unsqueeze(1)
        else:
            x = self.slots(pooled) if isinstance(self.slots, MlpSlots) else self.slots(self.encoder, ids, mask)
        return x.float(), pooled.float()


def export_onnx(model: Nar | Encoder, folder: str | os.PathLike[str], *, check: bool = True) -> None:
    """Write `encoder.onnx`, `tokenizer.json` and, last, `encoder.json`; whatever was exported there before goes.

    `check` opens the result before it is put in place, and compares it with the model on texts of other lengths than
    the graph was made with.
    """
    try:
        import onnx  # noqa: F401  # which torch's exporter needs
    except ImportError as error:
        raise MissingExtraError("exporting an encoder", "train") from error
    where = Path(folder)
    if isinstance(model, Encoder):
        encoder, slots, design, width = model, None, PLAIN, model.width
    else:
        encoder, slots, design, width = model.encoder, model.slots, model.design, model.head.width
    whole, tokenizer = _EncoderWithSlots(encoder, slots), _tokenizer(encoder)
    note = Note(
        design=design,
        slots=0 if slots is None else slots.slots,
        width=width,
        pooled_width=encoder.width,
        pad_id=int(encoder.tokenizer.pad_token_id or 0),
        max_pieces=encoder.max_pieces,
        graphs={FP32: graph_name(FP32)},
    )
    with _evaluating(model), writing(where) as aside:
        _export(whole, aside / graph_name(FP32))
        tokenizer.save(str(aside / TOKENIZER))
        write_note(aside, note)
        if check:
            _compare(whole, aside)
        for old in [where / NOTE, *where.glob("encoder*.onnx"), *where.glob("encoder*.onnx.data")]:
            old.unlink(missing_ok=True)  # from here on there is no encoder until the new note is in place


def _export(whole: _EncoderWithSlots, target: Path) -> None:
    axes = {name: {0: "batch", 1: "pieces"} for name in INPUTS} | {name: {0: "batch"} for name in OUTPUTS}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer; what it warns of is what `_compare` looks at
        # By tracing: it takes a fifth of the time of torch.export or less, and no onnxscript.
        torch.onnx.export(
            whole.eval(),
            whole.encoder.padded(whole.encoder.pieces(_TRACED)),
            str(target),
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
    if len(list(target.parent.iterdir())) > 1:  # beyond two gigabytes: a file per weight
        _gather_weights(target)


def _gather_weights(graph: Path) -> None:
    """One file for all weights that did not fit into the graph."""
    import onnx

    made = onnx.load(graph)
    for path in graph.parent.iterdir():
        path.unlink()
    onnx.save_model(made, graph, save_as_external_data=True, location=data_name(graph.name))


def _tokenizer(encoder: Encoder) -> Tokenizer:
    """The Hugging Face tokenizer's own core, set as `Encoder.pieces` sets it."""
    outer = encoder.tokenizer
    core = getattr(outer, "backend_tokenizer", None)
    if not isinstance(core, Tokenizer):
        raise PixnarError(
            f"the tokenizer of {encoder.name} is written in Python: choose an encoder with a fast tokenizer"
        )
    made = Tokenizer.from_str(core.to_str())
    made.no_padding()
    made.enable_truncation(encoder.max_pieces, direction=getattr(outer, "truncation_side", "right"))
    return made


@torch.inference_mode()
def _compare(whole: _EncoderWithSlots, folder: Path) -> None:
    exported, encoder = QueryEncoder.load(folder, verify=False), whole.encoder
    for texts in (_CHECKED, _CHECKED[-1:], _CHECKED[1:2]):
        wanted = whole(*encoder.padded(encoder.pieces(texts)))
        for ours, theirs in zip(exported.query_vectors(texts), (part.cpu().numpy() for part in wanted), strict=True):
            size = max(1.0, float(np.abs(theirs).max(initial=0.0)))
            if ours.shape != theirs.shape or not np.abs(ours - theirs).max() <= _NEAR * size:  # not: NaN is far too
                raise PixnarError(
                    f"the exported {encoder.name} differs from the model: choose an encoder that can be traced"
                )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


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
            _export_aside(encoder, made)
        else:
            _quantize(encoder, folder, made, precision)
        _put(made, path, aside / "old")
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return QueryEncoder.load(path, precision=precision)


def _export_aside(encoder: Encoder, target: Path) -> None:
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
