"""The reference page of the metrics, generated from the catalogue: ``python -m lake.metrics_page``."""

from __future__ import annotations

from lake.catalogue import OWN_METRICS, SAMPLE_METRICS, Metric

_INTRO = """# Metrics

Every number that the collectors read or keep, generated (`make docs`) from the one table that declares them,
`lake/catalogue.py`. The columns of `queue_samples` and the Prometheus page at `[collect] metrics_port` derive from it.

On the Prometheus page an unknown value is absent, never 0, and a broker that cannot be read has no series until it can.
Texts are labels of `sojourn_queue_info`. Who asks for OpenMetrics gets it.

## Of each queue

Labels: `broker`, `queue`, `subscriber` (empty where the queue has one consumer only). In `queue_samples` the column
`unavailable` gives the reason for every null, and for every unknown partition. `tenants` lists depth, in flight,
delayed and oldest age of each tenant where a broker's settings say how one is found
([brokers/tenants.md](brokers/tenants.md));
Prometheus gets them as `sojourn_queue_tenant_<metric>`.

| column of `queue_samples` | Prometheus | kind | unit | meaning |
|---|---|---|---|---|
"""

_OWN = """
`sojourn_queue_sampled_timestamp_seconds` tells when the broker was asked.

## Of the collectors themselves

| Prometheus | labels | kind | unit | meaning |
|---|---|---|---|---|
"""


def markdown() -> str:
    """The whole page."""
    return _INTRO + "".join(map(_sample, SAMPLE_METRICS)) + _OWN + "".join(map(_own, OWN_METRICS))


def _sample(metric: Metric) -> str:
    shown = f"label `{metric.name}`" if metric.kind == "text" else f"`sojourn_queue_{metric.name}`"
    return f"| `{metric.name}` | {shown} | {metric.kind} | {metric.unit} | {metric.help} |\n"


def _own(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {labels} | {metric.kind} | {metric.unit} | {metric.help} |\n"


if __name__ == "__main__":
    print(markdown(), end="")
