"""What Kafka's error codes mean to a reader, in words."""

from __future__ import annotations

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER = 1, 3, 6
TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED = 29, 30, 31
UNSUPPORTED_VERSION = 35
NO_SUCH_GROUP = 69
UNKNOWN_TOPIC_ID = 100

#: Errors after which leaders are asked for again.
MOVED = frozenset({UNKNOWN_TOPIC, 5, NOT_LEADER, 7, 9, 13, 72, 74, 75, 76, UNKNOWN_TOPIC_ID})

_WORDS = {
    OFFSET_OUT_OF_RANGE: "the offset is not in the log any more",
    UNKNOWN_TOPIC: "its leader does not know it yet, or no longer",
    5: "it has no leader now",
    NOT_LEADER: "its leader is changing",
    7: "the broker timed out",
    9: "its replica is not available",
    14: "the group's coordinator is loading",
    15: "the group's coordinator is not available",
    16: "the group's coordinator is changing",
    TOPIC_REFUSED: "we are not allowed to read the topic",
    GROUP_REFUSED: "we are not allowed to describe the group",
    CLUSTER_REFUSED: "we are not allowed to describe the cluster",
    UNSUPPORTED_VERSION: "the broker is too old to tell it",
    56: "a disk of the broker failed",
    NO_SUCH_GROUP: "there is no such group",
    72: "the broker has no such listener",
    74: "its leader is changing",
    75: "its leader is changing",
    78: "its offsets are not available after a change of leaders",
}


def words(error: int) -> str:
    """Why something is not told."""
    return _WORDS.get(error, f"the broker answers with error {error}")
