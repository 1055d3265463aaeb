from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alerts.models import AlertState, fingerprint

LABELS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)


def test_a_fingerprint_is_the_one_that_prometheus_computes() -> None:
    """The values stand in prometheus/common, ``model/signature_test.go``."""
    assert int(fingerprint({}), 16) == 14695981039346656037
    labels = {"name": "garland, briggs", "fear": "love is not enough"}
    assert int(fingerprint(labels), 16) == 5799056148416392346


@given(LABELS)
def test_the_order_of_labels_does_not_change_a_fingerprint(labels: dict[str, str]) -> None:
    assert fingerprint(labels) == fingerprint(dict(reversed(list(labels.items()))))
    assert len(fingerprint(labels)) == 16


def test_an_alert_kept_firing_counts_as_firing() -> None:
    assert [state for state in AlertState if state.is_firing] == [AlertState.FIRING, AlertState.KEEP_FIRING]
