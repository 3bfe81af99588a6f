"""head: phrase rows in small numbers, multiplied natively; no torch.

In come the rows [V + 1, d] and the bias of a trained head, and a query's vectors; out go logits, the best tokens, and
the scores that decoding takes. docs/kernel.md tells formats, exactness and paths.
"""

from __future__ import annotations

from pixnar.head.factors import DocidFactors
from pixnar.head.formats import FORMATS, Format
from pixnar.head.paths import head_path, head_paths
from pixnar.head.rows import HeadRows, Scored, union_of_lists

__all__ = ["FORMATS", "DocidFactors", "Format", "HeadRows", "Scored", "head_path", "head_paths", "union_of_lists"]
