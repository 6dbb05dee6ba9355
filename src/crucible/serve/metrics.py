"""metrics: what the service tells Prometheus of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

_OWN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_JUDGING_S = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


class Metrics:
    """Counters of this process, gauges of the ledger as it stands."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._fleet = _Fleet()
        self._registry.register(self._fleet)
        self._requests = Counter(
            "crucible_requests", "Requests answered.", ("route", "status"), registry=self._registry
        )
        self._own = Histogram(
            "crucible_request_overhead_seconds",
            "Time spent on a request by the service itself, without what it waited for a verdict.",
            ("route",),
            buckets=_OWN_S,
            registry=self._registry,
        )
        self._verdicts = Counter(
            "crucible_verdicts",
            "Verdicts reached, by what became of the candidate.",
            ("outcome",),
            registry=self._registry,
        )
        self._judging = Histogram(
            "crucible_judging_seconds",
            "Time from a worker's taking a submission to its verdict.",
            buckets=_JUDGING_S,
            registry=self._registry,
        )

    def handled(self, route: str, status: int, own_s: float) -> None:
        """One request answered; `own_s` without waiting for verdicts."""
        self._requests.labels(route, str(status)).inc()
        self._own.labels(route).observe(max(own_s, 0.0))

    def judged(self, outcome: str, seconds: float) -> None:
        """One verdict, by its kind, or `failed` where the judge could not reach one."""
        self._verdicts.labels(outcome).inc()
        self._judging.observe(seconds)

    def text(self, states: Mapping[str, int], alive: int, lost: int) -> bytes:
        """All of it in Prometheus' text form; `states` are the ledger's counts, `alive` and `lost` the workers'."""
        self._fleet.counts, self._fleet.alive, self._fleet.lost = states, alive, lost
        return generate_latest(self._registry)


class _Fleet(Collector):
    counts: Mapping[str, int] = {}
    alive = 0
    lost = 0

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        states = GaugeMetricFamily("crucible_submissions", "Submissions in the ledger, by state.", labels=["state"])
        for state, count in self.counts.items():
            states.add_metric([state], count)
        yield states
        yield GaugeMetricFamily("crucible_queue_depth", "Submissions that wait.", value=self.counts.get("queued", 0))
        yield GaugeMetricFamily("crucible_workers_alive", "Workers that judge or wait for work.", value=self.alive)
        yield CounterMetricFamily("crucible_worker_restarts", "Workers lost, and started again.", value=self.lost)
