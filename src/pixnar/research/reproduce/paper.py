"""The figures of the paper, to stand beside ours."""

from __future__ import annotations

TABLE1 = {  # MS MARCO: R@5, R@20, R@100, MRR@10; latency on a GPU, in multiples of CLOVERv2's
    "DSI": (None, None, None, 17.3, None),
    "NCI": (None, None, None, 9.1, None),
    "SEAL": (19.8, 35.3, 57.2, 12.7, 84.3),
    "MINDER": (29.5, 53.5, 78.7, 18.6, 94.1),
    "LTRGR": (40.2, 64.5, 85.2, 25.5, 94.1),
    "CLOVERv2": (29.2, 47.7, 66.9, 18.3, 1.0),
    "PIXAR": (38.7, 61.0, 80.9, 24.0, 1.2),
}
TABLE2 = {  # MS MARCO, 128 K tokens: MRR@10, R@5, R@20, R@100
    "word-pieces (DeBERTa)": (18.3, 29.2, 47.7, 66.9),
    "BPE": (18.7, 29.8, 48.5, 67.4),
    "Unigram": (19.0, 30.5, 49.7, 68.7),
    "phrases": (21.6, 34.7, 56.0, 77.5),
}
TABLE3 = {  # MS MARCO: MRR@10, R@5, R@20, R@100
    "128K": (21.6, 34.7, 56.0, 77.5),
    "500K": (21.7, 34.9, 56.9, 78.6),
    "800K": (21.9, 35.2, 57.5, 79.2),
    "1M": (22.5, 35.7, 58.4, 79.6),
    "5M": (24.2, 38.5, 61.0, 81.6),
}
TABLE4 = {  # MS MARCO, 5 M tokens, a GPU: MRR@10, R@100, mean and p99 milliseconds
    "full softmax": (24.2, 81.6, 47.9, 48.3),
    "SVD-softmax": (22.8, 78.6, 13.7, 14.3),
    "HiRE": (24.0, 81.3, 12.7, 13.2),
    "centroid clustering": (21.7, 78.2, 14.2, 17.4),
    "fast vocabulary projection": (22.6, 79.6, 9.5, 16.7),
    "PIXAR": (24.0, 80.9, 4.5, 5.0),
}
TABLE6 = {  # MS MARCO: mean and p99 tokens per docid
    "CLOVERv2": (10.98, 18),
    "128K": (5.56, 12),
    "500K": (4.78, 11),
    "1M": (4.46, 10),
    "5M": (4.05, 9),
}
SPONSORED = {"CLOVERv2": 23.5, "PIXAR": 29.1}  # P@100 of a billion keywords
