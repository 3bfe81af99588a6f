"""Smaller and faster graphs from an exported one. What they cost in quality the caller measures on dev."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.runtime.encoder_folder import (
    FP32,
    INT8,
    INT8_BLOCKS,
    TOKENIZER,
    check_files,
    data_name,
    graph_name,
    read_note,
    write_note,
    writing,
)

if TYPE_CHECKING:
    from onnx import ModelProto

_BLOCK = 64  # weights, and numbers of a row, that share a scale in `int8-blocks`


def quantize_onnx(folder: str | os.PathLike[str], precision: str = INT8) -> Path:
    """Add a graph with 8-bit weights to an exported encoder, beside the one in fp32; its path.

    `int8` scales weights per column and all numbers that go into a product by one range: the fastest.
    `int8-blocks` scales both in blocks of a row: nearly the vectors of fp32, at part of the gain.
    """
    if precision not in (INT8, INT8_BLOCKS):
        raise PixnarError(f"precision {precision!r}: graphs can be made in {INT8} and {INT8_BLOCKS}")
    where = Path(folder)
    note = read_note(where)
    if FP32 not in note.graphs:
        raise PixnarError(f"{where} has no graph in {FP32} any more: export the encoder again")
    check_files(where, note, [TOKENIZER, *note.files_of(FP32)])
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("quantising an encoder", "train") from error
    graph, name = where / note.graphs[FP32], graph_name(precision)
    large = data_name(graph.name) in note.files
    with writing(where) as aside, _quiet():
        (_dynamic if precision == INT8 else _blocks)(_without_copies(onnx.load(graph)), aside / name, large)
    write_note(where, replace(note, graphs=note.graphs | {precision: name}))
    return where / name


def _without_copies(model: ModelProto) -> ModelProto:
    """Weights that are used twice, as by mask slots, are reached through copies, in which no quantiser sees weights."""
    weights = {one.name for one in model.graph.initializer}
    copies = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "Identity" and node.input[0] in weights
    }
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = copies.get(name, name)
    kept = [node for node in model.graph.node if not (node.op_type == "Identity" and node.output[0] in copies)]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _dynamic(graph: ModelProto, target: Path, large: bool) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        graph,
        target,
        op_types_to_quantize=["MatMul"],  # embeddings stay: they would be smaller, not faster
        per_channel=True,
        reduce_range=True,  # 7 bits: processors without VNNI overflow on 8, and would answer differently
        weight_type=QuantType.QInt8,
        use_external_data_format=large,
    )


def _blocks(graph: ModelProto, target: Path, large: bool) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    # accuracy level 4: products of 8-bit numbers
    made = MatMulNBitsQuantizer(graph, bits=8, block_size=_BLOCK, is_symmetric=False, accuracy_level=4)
    made.process()
    made.model.save_model_to_file(str(target), large)


@contextmanager
def _quiet() -> Iterator[None]:
    """The quantisers log advice that does not concern our users."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
