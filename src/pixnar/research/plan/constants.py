"""What the plan reckons with, and where each number comes from.

Measured ones name the file under benchmarks/results they are read from (two cores of a shared Xeon, one thread unless
said). The rest follows from formats, or is an assumption about machines that are not at hand, and says so.
"""

from __future__ import annotations

# The vocabulary: vocab-generated.json, 28.7 million docids (1.0 GB of text) to 5 million tokens.
VOCABULARY_CORE_SECONDS_PER_MB = 0.37
VOCABULARY_MEMORY_PER_TEXT_BYTE = 4.6
VOCABULARY_BYTES_PER_TOKEN = 142.0  # of the file; plan.json

# The docid table: decode-100m.json and decode.json for the arrays, plan.json for files; docs/LOG.md for 10 million.
TABLE_BYTES = 3.7  # per docid, beside the tokens themselves
INDEX_BYTES = 0.5  # per docid, beside one row number per token
LIST_BYTES = 10.0  # per token of the vocabulary: where its list begins, and its blocks
SPELLING_BYTES_PER_TEXT_BYTE = 0.56
DOCUMENT_BYTES = 34.0  # with some metadata; 19 without any
TABLE_CORE_SECONDS = 18.5e-6  # per docid: reading, encoding, sorting
TABLE_MEMORY_PER_DOCID = 55.0
TABLE_MEMORY = 0.7e9

# What a training run reads: plan.json. Python strings in the first process, a file that all others map, and in every
# process the pairs of an epoch.
READING_MEMORY_PER_DOCID = 544.0
READING_FILE_PER_DOCID = 90.2
PAIRS_MEMORY_PER_DOCID = 140.0  # while the next epoch is drawn; 86 the rest of the time
READING_CORE_SECONDS = 12.1e-6

# The lexical index over docids, and what each byte of the documents' own text adds to it: plan-text.json.
LEXICAL_BYTES = 85.4
LEXICAL_CORE_SECONDS = 8.3e-6
LEXICAL_MEMORY_PER_DOCID = 1180.0  # at the peak of building it
LEXICAL_BYTES_PER_TEXT_BYTE = 2.1
LEXICAL_CORE_SECONDS_PER_TEXT_BYTE = 1.9e-7
LEXICAL_MEMORY_PER_TEXT_BYTE = 33.0

# Arithmetic of one core: plan.json, in seconds of the processor.
CORE_FLOPS_HEAD = 1.03e11
CORE_FLOPS_ENCODER = 8.8e10
SAMPLED_SECONDS_PER_STEP = 0.006  # beside the products: merging, gathering
CANDIDATES = 6  # docids of a document that the ranking loss looks at
RANKING_GRADIENTS = 1.02  # of the size of the head's own, at the peak of a step with the full softmax
DRAW_SECONDS_PER_TOKEN = 3.7e-7  # of a sampled softmax, from millions of tokens
COPY_SECONDS_PER_CELL = 4.9e-10  # of the copy distribution: inputs x candidate tokens
HOST_BANDWIDTH = 1.5e10  # bytes a second that a core reads and writes (assumed)

# Listing the best tokens of the vectors c_i, beside the products: a throw-away script, 128 vectors of 384, lists of
# 3,000 out of 100,000 tokens in 0.34 s. Each piece of 65,536 tokens is merged into the list.
LIST_SECONDS_PER_MERGED = 2.5e-7
LIST_SECONDS_PER_SCORE = 2e-9
LIST_PIECE = 65_536

# Assumed of a GPU and of what lies between them; --gpu-tflops and --gpu-memory change the main ones.
GPU_SHARE = 0.35  # of its nominal speed that large products reach
GPU_BANDWIDTH = 1.5e12  # bytes a second, of its own memory
GPU_LINK = 5.0e10  # bytes a second, from one to all others
GPU_OTHER = 1.5e9  # bytes that torch, its kernels and nccl take
CHUNK_BYTES = 3 * 64e6  # logits of one piece of the vocabulary, thrice: model/logsumexp.py
CHUNK_BYTES_CPU = 3 * 8e6
PROCESS_BYTES = 0.42e9  # of a process with torch, gloo and what it was not asked for: distributed.json

# Formats: bytes that follow from the code.
FLOAT, HALF = 4, 2
ROW_STATE = 6  # row-wise Adam: a float and a 16-bit count per row
ADAM_STATE = 8  # plain Adam: two floats per number

# Encoders by width: all parameters, those outside the word table, layers. MiniLM-L6, and DeBERTa-v3-base.
ENCODER_NAMES = {384: "", 768: "microsoft/deberta-v3-base", 1024: "microsoft/deberta-v3-large"}  # 384: the default
ENCODERS = {384: (22.7e6, 10.6e6, 6), 768: (184e6, 86e6, 12), 1024: (434e6, 303e6, 24)}
ONNX_BYTES_PER_PARAMETER = 2.7  # 8-bit weights in blocks, word table in 32 bits: the demo's index
