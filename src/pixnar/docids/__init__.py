"""docids: a corpus and a vocabulary come in; a table of docids that can be searched and changed comes out."""

from __future__ import annotations

from pixnar.docids.build import build_table
from pixnar.docids.documents import Documents
from pixnar.docids.files import add_files
from pixnar.docids.filters import Filter, parse
from pixnar.docids.table import DocidTable, LengthCount

__all__ = ["DocidTable", "Documents", "Filter", "LengthCount", "add_files", "build_table", "parse"]
