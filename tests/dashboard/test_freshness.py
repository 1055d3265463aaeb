from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dashboard.services.freshness import Freshness, Heartbeats, Level, freshness, intervals

NOW = datetime(2026, 3, 1, 3, 7, 0, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def judged(age: float, beats: Heartbeats) -> Freshness:
    found = freshness({"nats": ago(age), "kafka": ago(1)}, beats, NOW, 15)
    assert found is not None
    return found


def test_without_data_there_is_no_age() -> None:
    assert freshness({}, Heartbeats(), NOW, 15) is None


def test_data_within_the_limit_are_fresh_whatever_the_links_do() -> None:
    assert judged(15, Heartbeats()).level is Level.FRESH


def test_the_broker_that_is_most_behind_decides() -> None:
    assert judged(120, Heartbeats()).age_seconds == 120


def test_silent_collectors_are_named() -> None:
    found = judged(120, Heartbeats(events=ago(110), samples=ago(100), metrics=ago(109)))
    assert found.level is Level.STALE
    assert "Data are 2 min old" in found.title and "03:05:00 UTC" in found.title
    assert "1 min 40 s ago" in found.reason and "sojourn collect" in found.reason


def test_analytics_behind_the_events_are_named() -> None:
    found = judged(60, Heartbeats(events=ago(1), samples=ago(1), metrics=ago(59)))
    assert found.level is Level.STALE
    assert "sojourn analyze" in found.reason and "58 s behind" in found.reason


def test_events_that_were_never_analyzed_are_named() -> None:
    found = judged(60, Heartbeats(events=ago(1), samples=ago(1)))
    assert "sojourn analyze" in found.reason


def test_a_silent_queue_with_living_collectors_is_quiet_not_broken() -> None:
    found = judged(60, Heartbeats(events=ago(60), samples=ago(1), metrics=ago(59)))
    assert found.level is Level.QUIET
    assert "No message has moved on nats for 1 min" in found.title


def test_a_sampled_broker_whose_data_are_old_was_not_read_though_another_is() -> None:
    alive = Heartbeats(samples=ago(1), state=ago(2))
    found = freshness({"redis": ago(83), "rabbitmq": ago(1)}, alive, NOW, 15, intervals={"redis": 1.0, "rabbitmq": 2.5})
    assert found is not None and found.level is Level.STALE
    assert found.title.startswith("redis was not read for 1 min 23 s. Its queues are shown as of 03:05:37 UTC")
    assert "does not answer" in found.reason and "Everything" not in found.title


def test_analytics_behind_the_readings_are_named() -> None:
    for state, behind in ((ago(60), "59 s behind"), (None, "metrics. Look")):
        found = freshness(
            {"redis": ago(60)}, Heartbeats(samples=ago(1), state=state), NOW, 15, intervals={"redis": 1.0}
        )
        assert found is not None and found.level is Level.STALE
        assert "Readings arrive" in found.reason and behind in found.reason and "sojourn analyze" in found.reason


def test_old_events_that_arrive_now_are_not_taken_for_the_present() -> None:
    found = judged(3_600, Heartbeats(events=ago(1), metrics=ago(1)))
    assert found.level is Level.STALE and "a replay" in found.reason


def test_a_lake_that_nobody_collects_into_says_so() -> None:
    assert "replay" in judged(60, Heartbeats(metrics=ago(50))).reason


def test_a_page_that_shows_an_old_reading_does_not_say_that_nothing_moves() -> None:
    alive = Heartbeats(events=ago(1), samples=ago(1), metrics=ago(1))
    found = freshness({"nats": ago(38)}, alive, NOW, 15, read_at=ago(35))
    assert found is not None and found.level is Level.STALE
    assert "38 s old" in found.title and "read 35 s ago" in found.reason and "being read" in found.reason
    silent = freshness({"nats": ago(60)}, Heartbeats(events=ago(60), samples=ago(1), metrics=ago(59)), NOW, 15, ago(2))
    assert silent is not None and silent.level is Level.QUIET


def test_a_broker_that_is_asked_every_half_minute_is_not_silent_between_two_readings() -> None:
    alive = Heartbeats(samples=ago(1), metrics=ago(1))
    read = {"sqs": ago(40), "nats": ago(1)}
    asked = intervals(
        [
            {"broker": "sqs", "staleness_seconds": 3600.0, "sample_interval_seconds": 300.0},  # of a queue that is gone
            {"broker": "sqs", "staleness_seconds": 60.0, "sample_interval_seconds": 30.0},
            {"broker": "nats", "staleness_seconds": None, "sample_interval_seconds": None},
        ]
    )
    assert asked == {"sqs": 30.0}
    found = freshness(read, alive, NOW, 15, intervals=asked)
    assert found is not None and found.level is Level.FRESH and found.age_seconds == 40
    for late in ({"sqs": ago(91), "nats": ago(1)}, {"sqs": ago(40), "nats": ago(16)}):
        found = freshness(late, alive, NOW, 15, intervals=asked)
        assert found is not None and found.level is not Level.FRESH
    assert found is not None and found.age_seconds == 16, "who is behind is told of, not who is seldom asked"
