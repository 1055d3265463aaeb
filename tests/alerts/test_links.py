"""Links that labels are filled into lead where the settings say, whatever the labels are."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from alerts.notify.links import links
from alerts.notify.payload import alert_of
from alerts.notify.plan import Notice
from alerts.settings import AlertSettings
from tests.alerts.test_plan import alert

QUEUE = "https://sojourn.example/queue?queue={broker}%2F{queue}"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"broker": "nats", "queue": "orders"}, "https://sojourn.example/queue?queue=nats%2Forders"),
        ({"broker": "a/b", "queue": "x&y=1#z é"}, "https://sojourn.example/queue?queue=a%2Fb%2Fx%26y%3D1%23z%20%C3%A9"),
        ({"broker": "nats"}, None),
        ({"broker": "nats", "queue": "x" * 3000}, None),
    ],
)
def test_labels_are_filled_in_encoded(labels: dict[str, str], expected: str | None) -> None:
    assert links({"queue_url": QUEUE}, labels).get("queue_url") == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue_url": "https://{broker}.example/"},
        {"queue_url": "https://example{queue}"},
        {"queue_url": "javascript:alert(1)"},
        {"queue_url": "https://example.org/{a b}"},
        {"queue_url": "https://example.org/{queue"},
        {"queue_url": "https://example.org/ x"},
        {"queue-url": "https://example.org/"},
    ],
)
def test_a_link_that_a_label_could_turn_elsewhere_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        AlertSettings.model_validate({"links": wrong})


def test_a_notification_has_the_links_and_the_value_unless_the_rule_says_otherwise() -> None:
    told = alert_of(Notice(alert()), "", templates={"queue_url": QUEUE, "summary": "https://example.org/"})
    assert told["annotations"] == {
        "summary": "acme is noisy",
        "queue_url": "https://sojourn.example/queue?queue=nats%2Forders",
        "value": "0.9",
    }
