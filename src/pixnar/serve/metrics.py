"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], int]]]) -> None:
        """`gauges` maps a name to its description and the function that reads it on every scrape."""
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "pixnar_requests", "Requests by route and HTTP status.", ["route", "status"], registry=registry
        )
        self.latency = Histogram(
            "pixnar_request_seconds", "From arrival to answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self.stages = Histogram(
            "pixnar_stage_seconds", "Time of a query in each stage.", ["stage"], buckets=_SECONDS, registry=registry
        )
        self.batches = Histogram(
            "pixnar_batch_queries",
            "Queries that a worker took at once.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=registry,
        )
        self.errors = Counter(
            "pixnar_errors", "Requests that failed for a reason of the server's own.", registry=registry
        )
        self.swaps = Counter("pixnar_index_swaps", "Times that a new index was put in force.", registry=registry)
        self.refusals = Counter(
            "pixnar_index_refusals", "Times that the index folder could not be used.", registry=registry
        )
        for name, (what, function) in gauges.items():
            Gauge(f"pixnar_{name}", what, registry=registry).set_function(function)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
