"""table: a corpus and a vocabulary come in; a table of docids that can be searched and changed goes out."""

from __future__ import annotations

from pixnar.table.build import build_table
from pixnar.table.files import add_files
from pixnar.table.table import DocidTable

__all__ = ["DocidTable", "add_files", "build_table"]
