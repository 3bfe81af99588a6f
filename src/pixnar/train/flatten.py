"""Flattened optimizer state: named tensors and JSON that a checkpoint can hold, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pixnar.base.errors import FileFormatError

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
