"""The first five minutes: everything there is so far, run on the demo corpus."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape

from pixnar.corpus import open_corpus, write_demo
from pixnar.docids import DocidTable, build_table
from pixnar.progress import Progress
from pixnar.search import Decoder, SlotScores
from pixnar.vocab import Vocabulary, inspect

DEMO_VOCABULARY_SIZE = 16_384
_SLOTS = 16
_LONGEST_PHRASE = 5  # words


def run_demo(folder: Path, *, threads: int = 0, progress: Progress | None = None) -> None:
    """Write the demo corpus, learn its phrases, make its docids searchable, and show all of it.

    Steps done by an earlier run are not done again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    corpus_folder, vocabulary_file = folder / "corpus", folder / "phrases.vocab"
    if corpus_folder.exists():
        console.print(f"{corpus_folder} is there already and is reused")
    else:
        stats = write_demo(corpus_folder)
        console.print(
            f"{corpus_folder}: ICD-10-CM, {stats.documents:,} codes, {stats.docids:,} terms that name them, "
            f"{stats.test_queries:,} held-out test queries. {stats.notice}"
        )
    corpus = open_corpus(corpus_folder)
    if vocabulary_file.exists():
        vocabulary = Vocabulary.load(vocabulary_file)
        console.print(f"{vocabulary_file} is there already and is reused")
    else:
        docids = (row.docid for row in corpus.docids(progress=progress))
        vocabulary = Vocabulary.build(docids, DEMO_VOCABULARY_SIZE, threads=threads, progress=progress)
        vocabulary.save(vocabulary_file)
        console.print(f"{vocabulary_file}: {len(vocabulary):,} tokens")

    found = inspect.inspect(vocabulary, top=12)
    inspect.plot(found, folder / "phrases.png")
    queries = [query.text for query, _ in zip(corpus.queries(), range(4), strict=False)]
    console.print(inspect.render(found, vocabulary, queries))
    console.print("\nThe last lines are held-out queries the vocabulary has never seen, cut at its tokens.\n")

    table_folder = folder / "docids.table"
    if table_folder.exists():
        table = DocidTable.open(table_folder)
        console.print(f"{table_folder} is there already and is reused")
    else:
        table = build_table(corpus, vocabulary, table_folder, threads=threads, progress=progress)
        console.print(f"{table_folder}: {table.pairs:,} pairs of a docid and a document it names")
    _show_decoding(console, table, vocabulary, queries)
    console.print(
        f"\nThe vocabulary as a picture: {folder / 'phrases.png'}\n"
        f'Try your own text:    pixnar vocab encode {vocabulary_file} "sugar disease with kidney trouble"\n'
        f"Look at the docids:   pixnar table show {table_folder}\n"
        f"Try your own corpus:  pixnar vocab CORPUS -o my.vocab   (docs/corpus.md says how a corpus looks)"
    )


def _show_decoding(console: Console, table: DocidTable, vocabulary: Vocabulary, queries: list[str]) -> None:
    """Decode with scores that need no model: a phrase of the query is worth its rarity, others cost a part of it."""
    counts = vocabulary.token_counts.astype(np.float64)
    rarity = np.log((counts.sum() + len(counts)) / (counts + 1))
    decoder = Decoder(table, slots=_SLOTS, floor=-rarity / 4)
    console.print(
        "There is no model yet, so a query's own phrases are its scores; the best documents under them, exactly:"
    )
    for query in queries:
        found = _phrases(vocabulary, query)
        scores = SlotScores.sparse([(found, rarity[found])] * _SLOTS, np.zeros(_SLOTS))
        started = time.perf_counter()
        answer = decoder.documents(scores, k=2, order="any")
        milliseconds = (time.perf_counter() - started) * 1e3
        console.print(f"  [bold]{escape(query)}[/bold]  ({milliseconds:.2f} ms)")
        for hit in answer.hits:
            spelling = table.spelling(hit.tokens) or vocabulary.decode(hit.tokens)
            console.print(f"    {hit.score:6.1f}  {escape(hit.doc_id)}  {escape(spelling)}")


def _phrases(vocabulary: Vocabulary, text: str) -> list[int]:
    """Every phrase of a text that is one token."""
    words = text.split()
    spans = [words[i:j] for i in range(len(words)) for j in range(i + 1, min(i + _LONGEST_PHRASE, len(words)) + 1)]
    encoded = vocabulary.encode_batch([" ".join(span) for span in spans])
    return sorted({int(ids[0]) for ids in encoded.rows() if len(ids) == 1})
