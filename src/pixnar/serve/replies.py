"""Responses that several parts send."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import Response

from pixnar.serve.limits import RefusedError


def json_reply(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII: ids may hold what UTF-8 cannot."""
    return Response(json.dumps(content).encode(), status, headers, "application/json")


def refusal(error: RefusedError) -> Response:
    """Why a request is not answered, and when to come again."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    return json_reply({"error": error.line}, error.status, headers)
