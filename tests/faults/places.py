"""What is told of trouble with brokers, and what shows it: a scenario on the real server, or tests where it is none."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults import kafka, others, redis
from tests.faults.fault import Fault, Scene

SCENES: tuple[Scene, ...] = (kafka.SCENE, redis.SCENE, redis.CLUSTER, others.RABBITMQ, others.NATS)
FAULTS: dict[str, Fault] = {fault.name: fault for scene in SCENES for fault in scene.faults}

_KAFKA, _REDIS, _RECEIVE = "tests/collectors/kafka", "tests/collectors/redis", "tests/collectors/receive"


@dataclass(frozen=True)
class Place:
    """A line of the table: the trouble, the names of faults, and tests (file::name) of what no scenario shows."""

    words: str
    faults: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


PLACES = (
    Place(
        "Kafka deletes what a group has not read: it is LOST until it commits past the start, and its loss is counted",
        ("retention-overtakes-a-group",),
        (
            f"{_KAFKA}/test_faults.py::test_a_group_that_retention_has_overtaken_is_lost_until_it_commits_past_the_start",
        ),
    ),
    Place("A stable Kafka group has committed nothing: a row for each topic", ("group-has-committed-nothing",)),
    Place("A transaction hangs below a group of `read_committed`", ("transaction-hangs",)),
    Place(
        "Some partitions are unknown: what waits on the others is told beside their number; `uncommitted` by group",
        ("partition-without-a-commit",),
    ),
    Place(
        "More offsets move than a cycle may read the timestamps of: each is read in its turn and told with its "
        "staleness; a cycle that takes longer than its interval lengthens it",
        (),
        (
            f"{_KAFKA}/test_offset_timestamps.py::test_moving_heads_are_read_in_turn_within_the_bound_and_each_is_told_with_its_staleness",
            f"{_KAFKA}/test_offset_timestamps.py::test_heads_that_stand_come_before_those_that_move",
            f"{_KAFKA}/test_sampler.py::test_what_one_cycle_may_read_is_bounded_and_every_age_is_known_in_the_end_with_its_staleness",
            "tests/collectors/test_sampler.py::test_a_cycle_that_cannot_keep_its_interval_says_so_and_lengthens_it",
        ),
    ),
    Place(
        "Times that cannot be: an age is unknown with its reason; clocks that are set, and groups that are rewound",
        ("times-in-another-unit",),
        (
            f"{_KAFKA}/test_progress.py::test_a_clock_that_is_set_back_blinds_no_judgement",
            f"{_KAFKA}/test_faults.py::test_a_rewind_is_no_restart_of_a_counter",
        ),
    ),
    Place(
        "One broker of a cluster, or one cluster of several, cannot be read: the others are",
        ("node-is-not-trusted",),
        (
            f"{_KAFKA}/test_failover.py::test_a_broker_that_dies_leaves_unknowns_until_another_leads",
            f"{_KAFKA}/test_nodes.py::test_a_topic_is_not_said_to_be_read_by_nobody_while_one_nodes_groups_cannot_be_listed",
            f"{_REDIS}/test_shapes.py::test_a_node_that_is_lost_makes_its_own_queues_unknown_in_their_rows_and_no_other",
            "tests/collectors/nats/test_faults.py::test_a_node_that_is_lost_makes_its_own_streams_unknown_in_their_rows_and_no_other",
            "tests/collectors/rabbitmq/test_source.py::test_a_queue_of_which_no_node_tells_any_more_is_unknown_in_its_row_while_no_list_says_that_it_is_gone",
            "tests/collectors/test_run.py::test_what_the_user_must_mend_at_one_broker_keeps_no_other_from_beginning",
        ),
    ),
    Place(
        "Kafka brokers that lack a request, other mechanisms, share groups and groups of Kafka Streams: what was tried "
        "stands on [the page of brokers](README.md)",
        (),
        (
            f"{_KAFKA}/test_vendor.py::test_a_broker_without_a_request_is_named_and_read_by_librdkafka",
            f"{_KAFKA}/test_vendor.py::test_a_token_of_a_provider_opens_the_cluster",
            f"{_KAFKA}/test_access.py::test_a_certificate_may_have_another_name_than_the_host_and_a_key_its_password",
            f"{_KAFKA}/test_other_groups.py::test_a_share_group_has_a_depth_an_age_and_members_and_what_is_done_behind_its_start_does_not_wait",
            f"{_KAFKA}/test_other_groups.py::test_a_streams_group_is_sampled_with_its_members",
        ),
    ),
    Place(
        "Queues of which there are samples alone: nothing leaves, nobody consumes, retention comes near, all slots are "
        "held; slots that leak take a quarter of an hour and are shown by the rules' own tests",
        (
            "celery-without-workers",
            "nobody-consumes",
            "consumer-hangs",
            "retention-comes-near",
            "slots-are-held",
        ),
        ("tests/alerts/test_rules.py::test_the_built_in_rules_pass_their_own_tests",),
    ),
    Place("Logs are no backlogs", ("redis-log", "nats-log")),
    Place(
        "What is due later does not wait",
        ("celery-eta",),
        (
            f"{_REDIS}/test_layouts.py::test_a_celery_task_with_an_eta_or_countdown_waits_from_then_on_however_long_ago_it_was_sent",
        ),
    ),
    Place(
        "Celery's queues by pattern, Redis Cluster, Sentinel, TLS, an old primary that comes back empty",
        ("celery-by-pattern", "node-of-a-redis-cluster-is-lost", "other-nodes-of-the-redis-cluster"),
        (
            f"{_REDIS}/test_shapes.py::test_a_slot_that_moves_is_followed_while_it_moves_and_afterwards",
            f"{_REDIS}/test_shapes.py::test_sentinels_name_the_primary_before_and_after_a_fail_over",
            f"{_REDIS}/test_shapes.py::test_an_old_primary_that_comes_back_empty_after_a_fail_over_tells_nothing_rather_than_zeros",
            f"{_REDIS}/test_faults.py::test_tls_with_our_own_authority_and_a_password_is_spoken",
        ),
    ),
    Place(
        "The first of several servers is away; JetStream domains, credentials, exclusions, endpoints",
        ("nobody-consumes", "nats-log"),
        (
            "tests/collectors/nats/test_faults.py::test_where_a_server_is_away_the_next_of_the_list_is_read_and_a_domain_by_its_own_api",
            "tests/collectors/nats/test_secure.py::test_a_users_nkey_is_let_in_and_anothers_is_not",
            "tests/collectors/test_tap.py::test_what_was_recalled_is_forgotten_once_every_tapped_stream_has_it_beside_a_dead_letter_stream",
            "tests/collectors/rabbitmq/test_source.py::test_a_node_that_is_away_is_passed_over_and_excluded_queues_are_left_out",
            "tests/collectors/rabbitmq/test_credentials.py::test_a_token_that_is_fetched_by_client_credentials_opens_a_real_node",
            "tests/collectors/sqs/test_credentials.py::test_a_role_is_assumed_with_what_was_found_and_a_refusal_names_it",
            "tests/collectors/sqs/test_endpoints.py::test_each_partition_has_its_names",
        ),
    ),
    Place(
        "Traces are sampled, or a consumer's span comes before its producer's",
        ("sampled-traces",),
        (f"{_RECEIVE}/test_waiting.py::test_a_consumers_span_that_comes_first_waits_for_its_producers",),
    ),
    Place(
        "One queue has one name, plumbing is left out, idle is not stale; `sojourn doctor` names what does not join",
        ("one-queue-one-name",),
        (
            "tests/apps/test_apps.py::test_the_lake_knows_the_ages_that_the_application_logged",
            f"{_RECEIVE}/test_joins.py::test_celerys_own_queues_are_left_out",
            "tests/alerts/test_engine.py::test_idle_queues_are_not_stale_as_long_as_they_are_sampled",
            "tests/collectors/test_unjoined.py::test_events_without_samples_are_named_with_what_joins_them",
        ),
    ),
)
