"""``kind = "rabbitmq_policy"``: an operator policy that bounds how much of a tenant may wait in its own queue.

RabbitMQ limits no rate. What throttles is the length of a queue: beyond ``rate × backlog_seconds`` messages the node
refuses the publisher (``overflow`` ``reject-publish``) or puts the oldest aside (``drop-head`` with a dead-letter
exchange). Which of them is the queue's own to say: an operator policy can only be stricter, and in RabbitMQ 3.10 it
knows no ``overflow``. A queue that would throw messages away is left alone, unless ``may_lose_messages`` is true.
"""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from actuators.base import ActuatorSettings, Demand, Refused, Unverified, filled, refuse_other
from brokers.errors import CredentialsRefused
from brokers.rabbitmq.management import RabbitApi, call
from lake.errors import SojournError

#: Our policies' names begin so: whoever lists them knows whose they are.
OURS = "sojourn "
_LOOK_AGAIN = 0.1


class RabbitPolicySettings(ActuatorSettings, RabbitApi):
    """Which queue is a tenant's, and how much may wait there. The user needs the tag ``administrator``."""

    kind: Literal["rabbitmq_policy"] = "rabbitmq_policy"
    vhost: str = Field(default="/", min_length=1)
    queue: str = Field(default="{queue}.{tenant}", description="the tenant's queue; {queue} and {tenant} are replaced")
    backlog_seconds: float = Field(default=10.0, gt=0, le=86_400, description="max-length = this × rate, at least one")
    priority: int = Field(default=100, ge=0, description="of the policy: one policy rules a queue, the highest")
    may_lose_messages: bool = Field(default=False, description="also where the queue throws away what is too much")

    @field_validator("queue")
    @classmethod
    def _of_one_tenant(cls, queue: str) -> str:
        if "{tenant}" not in queue:
            raise ValueError("a queue needs {tenant} in its name: one that all tenants share would refuse everybody")
        return queue


class RabbitPolicy:
    """Puts and deletes operator policies, each for one queue."""

    ends_by_itself: ClassVar[bool] = False
    slows_consumers: ClassVar[bool] = False

    def __init__(self, settings: RabbitPolicySettings) -> None:
        self._settings = settings

    def place(self, demand: Demand) -> str:
        """The queue's name."""
        return filled(self._settings.queue, demand)

    def value(self, demand: Demand) -> str:
        """The policy as the API tells it, without what it says of itself."""
        bound = max(1, math.ceil(demand.rate * self._settings.backlog_seconds))
        return _canonical(
            {
                "pattern": f"^{re.escape(self.place(demand))}$",
                "apply-to": "queues",
                "priority": self._settings.priority,
                "definition": {"max-length": bound},
            }
        )

    def read(self, place: str) -> str | None:
        """Our policy for the queue."""
        found = self._asked("GET", "operator-policies", self._settings.vhost, OURS + place)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise SojournError(f"the policy of {place} is told as nonsense")
        return _canonical({name: found.get(name) for name in ("pattern", "apply-to", "priority", "definition")})

    def check(self, before: str | None, value: str) -> None:
        """A policy of our name that we did not put down is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Put the policy, and wait until it rules the queue; None deletes it."""
        where = ("operator-policies", self._settings.vhost, OURS + place)
        if value is None:
            self._asked("DELETE", *where)
            return
        self._check_queue(place)
        self._asked("PUT", *where, body=json.loads(value))
        deadline = time.monotonic() + self._settings.timeout
        while self._queue(place).get("operator_policy") != OURS + place:
            if time.monotonic() > deadline:
                raise Unverified(f"the policy is there, and does not rule the queue {place}")
            time.sleep(_LOOK_AGAIN)

    def _check_queue(self, place: str) -> None:
        """Refused where a bound would lose messages, or another operator policy rules."""
        queue = self._queue(place)
        ruling = queue.get("operator_policy")
        if ruling not in (None, "", OURS + place):
            raise Refused(f"the operator policy {ruling!r} rules the queue {place}: ours would take its place")
        effective, arguments = queue.get("effective_policy_definition") or {}, queue.get("arguments") or {}
        if not isinstance(effective, dict) or not isinstance(arguments, dict):
            raise SojournError(f"the queue {place} is told as nonsense")
        overflow = arguments.get("x-overflow", effective.get("overflow", "drop-head"))
        aside = "x-dead-letter-exchange" in arguments or "dead-letter-exchange" in effective
        if str(overflow).startswith("reject-publish") or aside or self._settings.may_lose_messages:
            return
        raise Refused(
            f"the queue {place} throws away what is beyond its length: give it overflow = reject-publish or a "
            "dead-letter exchange, or say may_lose_messages"
        )

    def _queue(self, place: str) -> dict[str, Any]:
        found = self._asked("GET", "queues", self._settings.vhost, place)
        if found is None:
            raise Refused(f"there is no queue {place}")
        if not isinstance(found, dict):
            raise SojournError(f"the queue {place} is told as nonsense")
        return found

    def _asked(self, method: str, *path: str, body: Any = None) -> Any:
        try:
            return call(self._settings, method, *path, body=body)
        except CredentialsRefused as error:
            raise Refused(str(error)) from None


def _canonical(policy: dict[str, Any]) -> str:
    return json.dumps(policy, sort_keys=True)
