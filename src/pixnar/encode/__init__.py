"""encode: query texts become vectors, without torch: a tokenizer and a graph that onnxruntime runs."""

from pixnar.encode.cache import CachedEncoder
from pixnar.encode.protocol import TextEncoder
from pixnar.encode.query_encoder import QueryEncoder, Timings

__all__ = ["CachedEncoder", "QueryEncoder", "TextEncoder", "Timings"]
