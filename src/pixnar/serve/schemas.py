"""Schemas of the HTTP API: the fields of requests, their limits, the shape of answers, the OpenAPI description."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pixnar.corpus.records import is_text
from pixnar.serve.queue import Limits


def _writable(text: str) -> str:
    """Refuse half of a surrogate pair, which JSON can hold and UTF-8 cannot."""
    if not is_text(text):
        raise ValueError("is no text: it has half of a surrogate pair; send valid Unicode")
    return text


def _plain(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """Metadata that every JSON reader can read."""
    _check_plain(metadata, 0)
    return metadata


def _check_plain(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"is nested deeper than {_DEEPEST} levels; make it flatter")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"has the value {value}, which JSON cannot hold; send a number or null")
    if isinstance(value, str):
        _writable(value)
    for inside in (
        [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        _check_plain(inside, depth + 1)


_DEEPEST = 32  # levels of metadata
Text = Annotated[str, AfterValidator(_writable)]
LONGEST_FILTER = 10_000  # characters
Where = Annotated[Text, Field(max_length=LONGEST_FILTER)]
DocumentId = Annotated[Text, Field(min_length=1, max_length=1000)]
Docid = Annotated[Text, Field(pattern=r"\S")]
Number = Annotated[float, Field(allow_inf_nan=False)]
_MOST = 1_000_000  # of anything; a server's own limits are lower
_STRICT = ConfigDict(extra="forbid", strict=True)


class _SearchFields(BaseModel):
    """Options of any search."""

    k: int = Field(10, ge=1, le=_MOST, description="Documents wanted for each query.")
    threshold: Number | None = Field(None, description="Leave out documents that score less.")
    where: Where | None = Field(None, description='Only documents whose metadata meets this, e.g. country = "de".')
    decode: Literal["exact", "beam"] = Field(
        "exact", description="exact: the best there are; beam: the paper's way, where docids alone rank."
    )
    width: int = Field(100, ge=1, le=_MOST, description="Of the beam.")
    explain: bool = Field(False, description="Also say how each answer came about; takes longer.")
    spelling: bool | None = Field(
        None,
        description="Whether words unknown to corpus and encoder are corrected; null: as fit decided on dev.",
    )


class Search(_SearchFields):
    """A search: one query or several, and what they have in common."""

    model_config = _STRICT | {
        "json_schema_extra": {"examples": [{"query": "sugar disease with kidney trouble", "k": 5}]}
    }

    query: Text | list[Text] = Field(description="What to look for; a list is answered in its order.")
    allow: list[Text] | None = Field(None, description="Only these documents.")
    forbid: list[Text] | None = Field(None, description="None of these documents.")


class SearchLine(_SearchFields):
    """The same for one query, in the address of a request."""

    model_config = ConfigDict(extra="forbid")

    q: Text = Field(description="What to look for.")

    def as_search(self) -> Search:
        """The same search as a body would state it."""
        return Search(query=self.q, **self.model_dump(exclude={"q"}))


class Named(BaseModel):
    """Docids that are to name a document, new or known."""

    model_config = _STRICT

    doc_id: DocumentId
    docids: list[Docid] = Field(min_length=1, description="Short texts that name the document.")
    title: Text | None = Field(None, description="Of the document; without one a known document keeps its own.")
    metadata: Annotated[dict[str, Any] | None, AfterValidator(_plain)] = Field(
        None, description="What filters may ask about; without it a known document keeps its own."
    )


class Addition(BaseModel):
    """Documents and docids to add, all or none."""

    model_config = _STRICT

    documents: list[Named] = Field(min_length=1)


class HitOut(BaseModel):
    """A document that was found."""

    doc_id: str
    score: float = Field(description="Compares documents of one query, not queries.")
    docid: str = Field(description="The docid that speaks best for it.")
    tokens: list[str] = Field(description="That docid as the phrases it was found by.")
    title: str
    metadata: dict[str, Any] = Field(description="What the corpus says of the document beside title and text.")


class ResultOut(BaseModel):
    """What one query found."""

    query: str
    corrected: str | None = Field(description="The text that was searched for, if spelling was corrected.")
    hits: list[HitOut] = Field(description="Best first.")
    explanation: dict[str, Any] | None = Field(description="How they were found, if that was asked for.")


class SearchOut(BaseModel):
    """The answer to a search: a result for each query."""

    index: str
    microseconds: float = Field(description="From taking the request in to having the answer, waiting included.")
    results: list[ResultOut] = Field(description="One for each query, in their order.")


class ChangeOut(BaseModel):
    """What the index holds after a change."""

    documents: int
    pairs: int = Field(description="Pairs of a docid and a document that it names.")


class StateOut(BaseModel):
    """How the server is."""

    status: str


class InfoOut(BaseModel):
    """What is served, and what may be asked."""

    index: str
    version: str
    documents: int
    docids: int
    vocabulary: int
    slots: int
    sources: list[str]
    keys: list[str] = Field(description="Metadata that filters may ask about.")
    limits: dict[str, float]
    live_changes: bool


class ErrorOut(BaseModel):
    """What was wrong, in a line that says what to change."""

    error: str


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
