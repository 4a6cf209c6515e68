# SPDX-License-Identifier: Apache-2.0
"""What the server counts, for Prometheus. Labels hold names of models that are in the repository, never what a client
has made up."""

import prometheus_client as prometheus

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    def __init__(self):
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        model = ["model", "version"]
        make = lambda kind, name, text, labels=(), **options: kind(
            f"tessera_{name}", text, labels, registry=self.registry, **options
        )
        self.requests = make(
            prometheus.Counter, "requests", "Answers by protocol and outcome", [*model, "protocol", "outcome"]
        )
        self.refused = make(prometheus.Counter, "refused", "Requests that reached no model", ["protocol", "outcome"])
        self.seconds = make(
            prometheus.Histogram, "request_seconds", "From a request's last byte to its answer", model, buckets=_SECONDS
        )
        self.waits = make(prometheus.Histogram, "queue_seconds", "In front of the model", model, buckets=_SECONDS)
        self.rows = make(prometheus.Histogram, "batch_rows", "Rows of a run that clients sent", model, buckets=_ROWS)
        self.filled = make(prometheus.Counter, "fill_rows", "Rows of runs that nobody sent", model)
        self.queued = make(prometheus.Gauge, "queued_requests", "Requests that wait", model)
        self.bytes = make(prometheus.Gauge, "model_bytes", "Memory of a version; 0 when it is not loaded", model)
        self.loads = make(prometheus.Counter, "loads", "Versions brought into memory", ["model", "outcome"])
        self.evictions = make(prometheus.Counter, "evictions", "Versions that made room for others", ["model"])

    def count(self, labels, protocol, outcome, seconds):
        """Notes an answer. labels: (name, version) of the model, or None where none was reached."""
        if labels is None:
            self.refused.labels(protocol, outcome).inc()
            return
        self.requests.labels(*labels, protocol, outcome).inc()
        self.seconds.labels(*labels).observe(seconds)

    def observer(self, name, version):
        """A function for Served to call after each run."""
        waits, rows = self.waits.labels(name, version), self.rows.labels(name, version)
        filled = self.filled.labels(name, version)

        def observe(waited, asked, ran):
            for seconds in waited:
                waits.observe(seconds)
            rows.observe(asked)
            filled.inc(ran - asked)

        return observe

    def forget(self, name, version):
        """Takes the rows of a version away that is no longer in the repository."""
        for metric in (self.seconds, self.waits, self.rows, self.filled, self.queued, self.bytes):
            metric.remove_by_labels({"model": name, "version": version})

    def text(self):
        return prometheus.generate_latest(self.registry)

    CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
