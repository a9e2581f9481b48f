"""Counters of the server, in the format of Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from seqlab.serve.batching import Batcher

BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)  # seconds
# without the *_created series that the library adds
NAMES = (
    "seqlab_requests_total",
    "seqlab_request_seconds_bucket",
    "seqlab_request_seconds_sum",
    "seqlab_request_seconds_count",
    "seqlab_batches_total",
    "seqlab_batched_rows_total",
    "seqlab_places_taken",
    "seqlab_started_seconds",
)


class Counters:
    """Requests by route and status, their duration, and the state of the queue, in a registry of their own."""

    def __init__(self, batcher: Batcher) -> None:
        registry = CollectorRegistry(auto_describe=True)
        self.requests = Counter(
            "seqlab_requests", "requests answered", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "seqlab_request_seconds",
            "time to answer a request",
            ["route"],
            buckets=BUCKETS,
            registry=registry,
        )
        Gauge(
            "seqlab_started_seconds", "when the server started", registry=registry
        ).set_to_current_time()
        registry.register(_QueueCollector(batcher))
        self._registry = registry.restricted_registry(NAMES)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, status).inc()
        self.seconds.labels(route).observe(seconds)

    def to_text(self) -> str:
        return generate_latest(self._registry).decode()


class _QueueCollector:
    """Reads the counters of the batcher."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("seqlab_batches", "batches computed", value=self.batcher.batches)
        yield CounterMetricFamily(
            "seqlab_batched_rows", "rows in those batches", value=self.batcher.rows
        )
        yield GaugeMetricFamily(
            "seqlab_places_taken", "requests waiting or being computed", value=self.batcher.pending
        )
