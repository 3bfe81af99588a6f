"""LangChain and LlamaIndex: the same hits in their words."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from llama_index.core.schema import MetadataMode, QueryBundle
from pydantic import ValidationError

from pixnar.base.errors import PixnarError
from pixnar.index import Index
from pixnar.integrations.langchain import PixnarRetriever as LangChainRetriever
from pixnar.integrations.llamaindex import PixnarRetriever as LlamaIndexRetriever
from pixnar.integrations.passages import passages

QUERY = "balin demor"


def test_langchain(index: Index) -> None:
    retriever = LangChainRetriever(index=index, k=4)
    found, hits = retriever.invoke(QUERY), index.search(QUERY, 4)
    assert [one.id for one in found] == [hit.id for hit in hits]
    number = int(hits[0].id[1:])
    assert found[0].page_content == f"Title {number}"
    assert found[0].metadata == {
        "country": ("de", "fr", "it")[number % 3],
        "price": number,
        "title": f"Title {number}",
        **hits[0].facts(),
    }
    assert asyncio.run(retriever.ainvoke(QUERY)) == found
    assert retriever.batch([QUERY, QUERY]) == [found, found]

    def contents(documents: list[Document]) -> list[str]:
        return [one.page_content for one in documents]

    chain = retriever | RunnableLambda(contents)
    assert chain.invoke(QUERY) == [one.page_content for one in found]


def test_langchain_options(index: Index) -> None:
    retriever = LangChainRetriever(index=index, where='country = "de" and price < 7')
    assert {one.id for one in retriever.invoke(QUERY)} == {"d00", "d03", "d06"}
    assert len(retriever.invoke(QUERY, k=2)) == 2
    assert {one.id for one in asyncio.run(retriever.ainvoke(QUERY, where="price < 2"))} == {"d00", "d01"}
    least = index.search(QUERY, 3)[2].score
    above = LangChainRetriever(index=index, threshold=least).invoke(QUERY)
    assert [one.id for one in above] == [hit.id for hit in index.search(QUERY, threshold=least)]
    with pytest.raises(PixnarError, match="no document has the key 'colour'"):
        retriever.invoke(QUERY, where="colour = 1")
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        LangChainRetriever(index=index, k=0)


def test_llamaindex(index: Index) -> None:
    retriever = LlamaIndexRetriever(index, k=4)
    found, hits = retriever.retrieve(QUERY), index.search(QUERY, 4)
    assert [(one.node_id, one.score) for one in found] == [(hit.id, hit.score) for hit in hits]
    assert found[0].text == f"Title {int(hits[0].id[1:])}"
    assert found[0].metadata["docid"] == hits[0].docid
    shown = found[0].node.get_content(MetadataMode.LLM)
    assert "country" in shown
    assert "score" not in shown
    again = asyncio.run(retriever.aretrieve(QueryBundle(QUERY)))
    assert [one.node_id for one in again] == [hit.id for hit in hits]


def test_llamaindex_options(index: Index) -> None:
    cheap = LlamaIndexRetriever(index, where='country = "de" and price < 7')
    assert {one.node_id for one in cheap.retrieve(QUERY)} == {"d00", "d03", "d06"}
    assert LlamaIndexRetriever(index, threshold=1e9).retrieve(QUERY) == []
    with pytest.raises(PixnarError, match="k is 0"):
        LlamaIndexRetriever(index, k=0)


@pytest.mark.parametrize("given", [dict, "a function"])
def test_texts(index: Index, given: Any) -> None:
    first, second = (hit.id for hit in index.search(QUERY, 2))
    by_id = {first: "The whole text."}
    texts = by_id if given is dict else by_id.get
    contents = [one.page_content for one in LangChainRetriever(index=index, k=2, texts=texts).invoke(QUERY)]
    assert contents == ["The whole text.", f"Title {int(second[1:])}"]
    assert [one.text for one in LlamaIndexRetriever(index, k=2, texts=texts).retrieve(QUERY)] == contents


def test_documents_without_a_title_and_documents_that_went(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "index")
    index = Index.load(tmp_path / "index")
    index.table.add("new", ["Balin Demor Demor"])
    (found,) = LangChainRetriever(index=index, k=1).invoke("balin demor demor")
    assert (found.page_content, found.id, "title" in found.metadata) == ("Balin Demor Demor", "new", False)
    hits = index.search("balin demor demor", 2)
    index.table.remove("new")
    assert [one.hit for one in passages(index, hits)] == hits[1:]
