"""integrations: an index comes in; a retriever for PyTerrier, LangChain, LlamaIndex or MCP goes out."""
