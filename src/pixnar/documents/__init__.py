"""documents: rows of a corpus come in; ids, titles, metadata and filters over them go out."""

from __future__ import annotations

from pixnar.documents.documents import Documents
from pixnar.documents.filters import Filter, parse

__all__ = ["Documents", "Filter", "parse"]
