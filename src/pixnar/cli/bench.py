"""pixnar bench: the benchmarks, each with the command that its own module declares."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from pixnar.cli.common import STANDARD_OUTPUT, Command, command_of, group

commands = group("bench", "Run a benchmark against the usual alternatives.")

_BENCHMARKS = {  # the first line of each one's help, so that listing them imports none
    "vocab": "Compare vocabulary builders: time, memory, tokens per docid, encoding speed.",
    "ray-build": "Vocabulary and docid table by Ray beside the plain path: same bytes, time, workers that are killed.",
    "decode": "Exact decoding and beams on generated tables: latency, recall, bytes per docid.",
    "ranking": "Measure what each element of the ranking is worth, beside BM25 and dense retrieval.",
    "softmax": "The paper's Table 4: full softmax, SVD-softmax, HiRE, clusters and the learned shortlist.",
    "search": "Whole searches: where the time goes, queries a second, memory, and baselines.",
    "serve": "Requests over HTTP: how many a second at 1, 4 and 16 clients, and what an overload does.",
    "opening": "Opening a large index: how long it takes, cold and warm, and how much memory.",
    "slopes": "How time, memory and disk of a build grow with docids, tokens and documents.",
}


class Benchmark(Command):
    """A benchmark that is imported when it is called: its command is `run` of its module."""

    def load(self) -> Any:
        """The command with its parameters."""
        name = str(self.name)
        return command_of(import_module(f"pixnar.benchmarks.{name.replace('-', '_')}").run, name)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments as the benchmark declares them."""
        context = self.load().make_context(info_name, args, parent, **extra)
        if context.params.get("json_file") == STANDARD_OUTPUT:
            raise typer.BadParameter("a benchmark writes --json after every measurement: give it a file, not -")
        return context


def _stub() -> None:
    raise AssertionError("a benchmark is loaded before it is called")


for _name, _help in _BENCHMARKS.items():
    commands.command(_name, cls=Benchmark, help=_help)(_stub)
