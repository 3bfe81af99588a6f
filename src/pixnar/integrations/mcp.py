"""MCP, the Model Context Protocol: an index as tools that an assistant calls, over standard input and output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any, ParamSpec, TypeVar

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.index import Index
from pixnar.integrations.passages import passages
from pixnar.table.inspect import inspect

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
    from pydantic import BaseModel, Field
except ImportError as error:
    raise MissingExtraError("the MCP server", "mcp") from error

_MOST = 100  # hits of one call: an assistant reads them all
_EXPLAINED = 10
_KEYS = 100
_TOKENS = 8
_DOCIDS = 8
_INSTRUCTIONS = (
    "Finds documents by what they are called: titles, keywords, questions they answer. Call describe first to learn "
    "what the index holds and by which keys it can be filtered, then search. A hit's docid is the name that found it."
)

Query = Annotated[str, Field(description="What to look for, in the words a person would use.", min_length=1)]
Where = Annotated[
    str | None,
    Field(
        description='Only documents whose metadata meets this, e.g. country in ("de", "fr") and price < 10. There are '
        "= != < <= > >= in, not in, has KEY, missing KEY, and, or, not, parentheses. The tool describe lists the keys."
    ),
]
Threshold = Annotated[
    float | None, Field(description="Leave out documents that score less; see the scores of a search.")
]
P = ParamSpec("P")
T = TypeVar("T")


class FoundDocument(BaseModel):
    """A document, the docid that speaks best for it, and what is known about it."""

    doc_id: str
    score: float
    docid: str
    title: str
    metadata: dict[str, Any]


class SearchResult(BaseModel):
    """What a search found, best first."""

    hits: list[FoundDocument]


class Reason(BaseModel):
    """Why a document was found: the docids that speak most for it, and its score by every source."""

    doc_id: str
    title: str
    score: float
    docids: dict[str, float]
    sources: dict[str, float]


class Explanation(BaseModel):
    """How an answer came about."""

    phrases_of_the_query: list[str]
    expected_phrases: list[str]
    hits: list[Reason]
    weights_of_sources: dict[str, float]
    milliseconds: float


class Description(BaseModel):
    """What an index holds."""

    documents: int
    docids: int
    phrases: int
    some_docids: list[str]
    keys: dict[str, list[Any]]
    dev_figures: dict[str, dict[str, float]]


def _told(tool: Callable[P, T]) -> Callable[P, T]:
    """The tool, whose errors tell the caller what to change."""

    @functools.wraps(tool)
    def called(*given: P.args, **named: P.kwargs) -> T:
        try:
            return tool(*given, **named)
        except PixnarError as error:
            raise ToolError(str(error)) from error

    return called


class Tools:
    """What an assistant may ask an index; documents that another process adds or removes are seen by the next call."""

    def __init__(self, index: Index) -> None:
        self._index = index

    @_told
    def search(
        self,
        query: Query,
        k: Annotated[int, Field(description="Documents wanted.", ge=1, le=_MOST)] = 10,
        where: Where = None,
        threshold: Threshold = None,
    ) -> SearchResult:
        """Find the k best documents, with titles and metadata."""
        self._index.table.refresh()
        found = passages(self._index, self._index.search(query, k, where=where, threshold=threshold))
        rows = [{**one.hit.facts(), "title": one.title, "metadata": one.metadata} for one in found]
        return SearchResult(hits=[FoundDocument.model_validate(row) for row in rows])

    @_told
    def explain(
        self,
        query: Query,
        k: Annotated[int, Field(description="Documents wanted.", ge=1, le=_EXPLAINED)] = 3,
        where: Where = None,
    ) -> Explanation:
        """Tell why a search finds what it finds: phrases the model expects, docids and sources of every document."""
        self._index.table.refresh()
        explanation = self._index.explain(query, k, where=where)
        titles = {one.hit.id: one.title for one in passages(self._index, self._index.search(query, k, where=where))}
        return Explanation(
            phrases_of_the_query=explanation["own"],
            expected_phrases=[token for token, _ in explanation["expected"][:_TOKENS]],
            hits=[
                Reason(
                    doc_id=hit["doc_id"],
                    title=titles.get(hit["doc_id"], ""),
                    score=hit["score"],
                    docids={one["docid"]: one["score"] for one in hit["docids"]},
                    sources=hit["sources"],
                )
                for hit in explanation["hits"]
            ],
            weights_of_sources=explanation["weights"],
            milliseconds=sum(explanation["microseconds"].values()) / 1000,
        )

    @_told
    def describe(self) -> Description:
        """Tell what the index holds: how much, some of the names it knows, the keys one can filter by, dev figures."""
        self._index.table.refresh()
        table = self._index.table
        seen = inspect(table, top=_DOCIDS)
        keys = table.snapshot().keys()
        return Description(
            documents=seen.documents,
            docids=seen.docids,
            phrases=seen.vocabulary,
            some_docids=[sample.text for sample in seen.samples],
            keys=dict(list(keys.items())[:_KEYS]),
            dev_figures=self._index.manifest.get("dev", {}),
        )


def make_server(index: Index, name: str = "pixnar") -> MCPServer:
    """A server with the tools `search`, `explain` and `describe` over one index; its `run()` speaks over stdio."""
    server = MCPServer(
        name, instructions=_INSTRUCTIONS, version=metadata.version("pixnar"), log_level="WARNING", subscriptions=False
    )
    tools, harmless = Tools(index), ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool in (tools.search, tools.explain, tools.describe):
        server.add_tool(tool, annotations=harmless)
    return server
