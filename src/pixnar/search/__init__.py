"""search: a query comes in; the best docids and documents go out, with a proof that they are the best."""

from __future__ import annotations

from pixnar.search.decoder import Decoded, Decoder
from pixnar.search.query import SlotScores
from pixnar.search.types import DocidHit, DocumentHit, Generated, Hit, Retriever

__all__ = ["Decoded", "Decoder", "DocidHit", "DocumentHit", "Generated", "Hit", "Retriever", "SlotScores"]
