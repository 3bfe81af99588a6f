"""search: a query comes in; the best docids and documents go out, with a proof that they are the best."""

from __future__ import annotations

from pixnar.search.decoder import Decoded, Decoder
from pixnar.search.hits import DocidHit, DocumentHit, Generated, Hit, Retriever
from pixnar.search.query import SlotScores

__all__ = ["Decoded", "Decoder", "DocidHit", "DocumentHit", "Generated", "Hit", "Retriever", "SlotScores"]
