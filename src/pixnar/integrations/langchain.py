"""LangChain: an index as a retriever, for chains and agents."""

from __future__ import annotations

from typing import Annotated, Any

from pixnar.base.errors import MissingExtraError
from pixnar.index import Index
from pixnar.integrations.passages import passages

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import run_in_executor
    from pydantic import Field
except ImportError as error:
    raise MissingExtraError("the LangChain retriever", "langchain") from error


class PixnarRetriever(BaseRetriever):
    """`PixnarRetriever(index=index).invoke("a question")` gives LangChain's Documents, best first.

    An index keeps titles and metadata, not texts: `page_content` is what `texts` (a dict or a function) says for a
    document's id, else its title, else the docid that found it. `metadata` is the document's, with `doc_id`, `score`,
    `docid` and `title`. A call may bring its own options: `invoke("…", k=3, where='country = "de"')`.
    """

    index: Index
    k: Annotated[int, Field(ge=1)] = 10
    where: str | None = None
    threshold: float | None = None
    texts: Any = None  # `passages.Texts`; pydantic would copy a mapping that may be larger than memory

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun | None = None, **options: Any
    ) -> list[Document]:
        wanted = {"k": self.k, "where": self.where, "threshold": self.threshold} | options
        found = passages(self.index, self.index.search(query, **wanted), self.texts)
        return [Document(id=one.hit.id, page_content=one.text, metadata=one.facts()) for one in found]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun | None = None, **options: Any
    ) -> list[Document]:
        return await run_in_executor(None, self._get_relevant_documents, query, **options)
