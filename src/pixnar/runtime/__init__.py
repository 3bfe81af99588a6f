"""runtime: query texts come in; their vectors, shortlists and token scores go out, without torch.

The query encoder runs in onnxruntime, phrase rows are small numbers multiplied natively (docs/kernel.md), and a
shortlist says which of them a query needs.
"""

from __future__ import annotations

from pixnar.runtime.factors import DocidFactors
from pixnar.runtime.formats import FORMATS, head_path, head_paths
from pixnar.runtime.query_encoder import CachedEncoder, QueryEncoder, TextEncoder
from pixnar.runtime.rows import HeadRows, union_of_lists
from pixnar.runtime.shortlist import Shortlist, defaults, token_lists

__all__ = [
    "FORMATS",
    "CachedEncoder",
    "DocidFactors",
    "HeadRows",
    "QueryEncoder",
    "Shortlist",
    "TextEncoder",
    "defaults",
    "head_path",
    "head_paths",
    "token_lists",
    "union_of_lists",
]
