"""corpus: folders, tables, Parquet or an ir_datasets id come in; documents, docids, queries and qrels stream out."""

from pixnar.corpus.demo import DemoStats, write_demo
from pixnar.corpus.reader import Corpus, open_corpus, state_of
from pixnar.corpus.records import DocidRow, Document, Qrel, Query, Skipped
from pixnar.corpus.texts import docid_texts, read_texts
from pixnar.corpus.write import check_corpus, copy_corpus, write_corpus

__all__ = [
    "Corpus",
    "DemoStats",
    "DocidRow",
    "Document",
    "Qrel",
    "Query",
    "Skipped",
    "check_corpus",
    "copy_corpus",
    "docid_texts",
    "open_corpus",
    "read_texts",
    "state_of",
    "write_corpus",
    "write_demo",
]
