"""LlamaIndex: an index as a retriever, for query engines and agents."""

from __future__ import annotations

import asyncio
from typing import Any

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.index import Index
from pixnar.integrations.passages import Texts, passages

try:
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as error:
    raise MissingExtraError("the LlamaIndex retriever", "llamaindex") from error


class PixnarRetriever(BaseRetriever):
    """`PixnarRetriever(index).retrieve("a question")` gives nodes with scores, best first.

    An index keeps titles and metadata, not texts: a node's text is what `texts` (a dict or a function) says for the
    document's id, else its title, else the docid that found it. A node has the document's id and its metadata, with
    `doc_id`, `score`, `docid` and `title`; the first three are not shown to a language model.
    """

    def __init__(
        self,
        index: Index,
        *,
        k: int = 10,
        where: str | None = None,
        threshold: float | None = None,
        texts: Texts | None = None,
        **others: Any,
    ) -> None:
        """`others` are those of LlamaIndex's BaseRetriever."""
        if k < 1:
            raise PixnarError(f"k is {k}: ask for at least one document")
        super().__init__(**others)
        self._index, self._texts = index, texts
        self._k, self._where, self._threshold = k, where, threshold

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._index.search(query_bundle.query_str, self._k, where=self._where, threshold=self._threshold)
        hidden = ["doc_id", "score", "docid"]
        return [
            NodeWithScore(
                node=TextNode(
                    id_=one.hit.id,
                    text=one.text,
                    metadata=one.facts(),
                    excluded_llm_metadata_keys=hidden,
                    excluded_embed_metadata_keys=hidden,
                ),
                score=one.hit.score,
            )
            for one in passages(self._index, hits, self._texts)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
