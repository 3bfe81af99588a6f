"""OpenAPI description of the API, with the limits of this server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from pixnar.serve.limits import Limits


def methods_of(app: FastAPI, path: str) -> list[str]:
    """HTTP methods of an address."""
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path == path]
    return sorted({method for route in routes for method in route.methods or ()})


def with_limits(app: FastAPI, limits: Limits) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi` that states the limits of this server."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = FastAPI.openapi(app)
            text = {"type": "string", "pattern": r"\S", "maxLength": limits.query_characters}
            fields = schema["components"]["schemas"]["Search"]["properties"]
            fields["query"]["anyOf"] = [
                text,
                {"type": "array", "items": text, "minItems": 1, "maxItems": limits.queries},
            ]
            fields["k"]["maximum"], fields["width"]["maximum"] = limits.k, limits.width
            for name in ("allow", "forbid"):
                fields[name]["anyOf"][0]["maxItems"] = limits.ids
            for parameter in schema["paths"]["/search"]["get"]["parameters"]:
                name, more = parameter["name"], parameter["schema"]
                more.update({"q": text, "k": {"maximum": limits.k}, "width": {"maximum": limits.width}}.get(name, {}))
        return app.openapi_schema or {}

    return openapi
