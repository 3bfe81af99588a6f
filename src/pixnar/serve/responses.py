"""JSON responses and refusals."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import Response

from pixnar.serve.limits import RefusedError

_DEEPEST = 64  # levels of a value that is nested too deep for JSON
_CLOSING = (408, 413)  # statuses after which the rest of the request may still be on the connection


def to_json(content: Any) -> bytes:
    """JSON in ASCII, since ids may hold lone surrogates; values that JSON cannot hold become null."""
    try:
        return json.dumps(content, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return json.dumps(_plain(content, _DEEPEST), allow_nan=False).encode()


def json_reply(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response with JSON: an object, or bytes that are JSON already."""
    body = content if isinstance(content, bytes) else to_json(content)
    return Response(body, status, headers, "application/json")


def refusal(error: RefusedError) -> Response:
    """The response of a refused request, with Retry-After where it has one."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if error.status in _CLOSING:
        headers["Connection"] = "close"
    return json_reply({"error": error.line}, error.status, headers)


def _plain(value: Any, levels: int) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(inside, levels - 1) for key, inside in value.items()} if levels else None
    if isinstance(value, list | tuple):
        return [_plain(inside, levels - 1) for inside in value] if levels else None
    return value
