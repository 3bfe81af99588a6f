"""softmax: the vectors of a query's slots come in; the best tokens of every slot come out, one way or another.

Six ways behind one interface, the paper's Table 4: all tokens, a preview of all tokens (SVD-softmax, HiRE), a list per
slot (centroids, fast vocabulary projection), and the learned list per query that an index uses.
"""

from pixnar.research.softmax.clusters import PerSlotLists, active_lists, centroid_lists, nearest_of
from pixnar.research.softmax.methods import (
    Full,
    LearnedShortlist,
    Preview,
    Softmax,
    Top,
    int4_preview,
    low_rank_preview,
    main_directions,
)

__all__ = [
    "Full",
    "LearnedShortlist",
    "PerSlotLists",
    "Preview",
    "Softmax",
    "Top",
    "active_lists",
    "centroid_lists",
    "int4_preview",
    "low_rank_preview",
    "main_directions",
    "nearest_of",
]
