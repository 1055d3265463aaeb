"""``kind = "rabbitmq_shovel"``: a dynamic shovel carries a tenant's own queue aside while the limit holds, and back.

RabbitMQ itself moves the messages, within the node. The shovel aside lasts as long as the limit; at its end, the
reaper's included, it goes, and another one brings back what is aside: ``src-delete-after`` ``queue-length``, so that it
ends by itself. Both acknowledge a message once its queue has confirmed it: what was under way when one ended is there
twice, at most ``prefetch`` of them. Needs the plugins ``rabbitmq_shovel`` and ``rabbitmq_shovel_management``; RabbitMQ
documentation, "Configuring Dynamic Shovels".
"""

from __future__ import annotations

import json
import time
from typing import Any, ClassVar, Literal, Self
from urllib.parse import quote

from pydantic import Field, model_validator

from actuators.base import ActuatorSettings, Demand, Refused, Unverified, filled, refuse_other
from brokers.errors import CredentialsRefused
from brokers.rabbitmq.management import RabbitApi, call
from lake.errors import SojournError

#: Our shovels' names begin so: whoever lists them knows whose they are.
ASIDE, BACK = "sojourn aside ", "sojourn back "
_LOOK_AGAIN = 0.1


class RabbitShovelSettings(ActuatorSettings, RabbitApi):
    """Which queue is a tenant's, and which one is beside it. The user needs the tag ``policymaker``, and the rights to
    configure, write and read both queues."""

    kind: Literal["rabbitmq_shovel"] = "rabbitmq_shovel"
    timeout: float = Field(default=5.0, gt=0, le=60, description="seconds in which the server must answer")
    vhost: str = Field(default="/", min_length=1)
    queue: str = Field(default="{queue}.{tenant}", description="the tenant's queue; {queue} and {tenant} are replaced")
    aside: str = Field(default="{queue}.{tenant}-aside", description="the queue beside it; made where there is none")
    prefetch: int = Field(default=100, ge=1, le=10_000, description="messages that a shovel has under way")

    @model_validator(mode="after")
    def _of_one_tenant(self) -> Self:
        if "{tenant}" not in self.queue or "{tenant}" not in self.aside:
            raise ValueError("queue and aside need {tenant}: a queue that all tenants share would be carried off whole")
        if self.queue == self.aside:
            raise ValueError("aside must be another queue")
        return self


class RabbitShovel:
    """Puts and deletes the shovels of one tenant's queue."""

    ends_by_itself: ClassVar[bool] = False
    slows_consumers: ClassVar[bool] = False

    def __init__(self, settings: RabbitShovelSettings) -> None:
        self._settings = settings

    def place(self, demand: Demand) -> str:
        """The two queues, as JSON: the tenant's and the one aside."""
        return json.dumps([filled(self._settings.queue, demand), filled(self._settings.aside, demand)])

    def value(self, demand: Demand) -> str:
        """The shovel aside as the API tells it: the same for every rate, as a shovel knows none."""
        home, aside = json.loads(self.place(demand))
        return json.dumps(self._shovel(home, aside, "never"), sort_keys=True)

    def read(self, place: str) -> str | None:
        """The shovel aside."""
        return self._parameter(ASIDE + json.loads(place)[0])

    def check(self, before: str | None, value: str) -> None:
        """A shovel of our name that we did not put down is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Put the shovel and wait until it runs; None ends it and has what is aside brought back."""
        home, aside = json.loads(place)
        if value is None:
            self._end(ASIDE + home)
            self._bring_back(home, aside)
            return
        if self._queue(home) is None:
            raise Refused(f"there is no queue {home}")
        if self._queue(aside) is None:
            self._asked("PUT", "queues", self._settings.vhost, aside, body={"durable": True})
        self._end(BACK + home)
        self._put(ASIDE + home, json.loads(value))
        self._wait(lambda: self._state(ASIDE + home) == "running", f"the shovel of {home} is there, and does not run")

    def _bring_back(self, home: str, aside: str) -> None:
        """What is aside now goes back; nobody waits for its end, as much may be there."""
        if self._queue(aside) is not None and self._queue(home) is not None:
            self._put(BACK + home, self._shovel(aside, home, "queue-length"))
            self._wait(
                lambda: self._parameter(BACK + home) is None or self._state(BACK + home) == "running",
                f"what is aside in {aside} does not come back",
            )

    def _shovel(self, source: str, target: str, ends: str) -> dict[str, Any]:
        here = f"amqp:///{quote(self._settings.vhost, safe='')}"  # within the node: nobody need say who he is
        return {
            "src-protocol": "amqp091",
            "src-uri": here,
            "src-queue": source,
            "src-prefetch-count": self._settings.prefetch,
            "src-delete-after": ends,
            "dest-protocol": "amqp091",
            "dest-uri": here,
            "dest-queue": target,
            "dest-add-forward-headers": True,
            "ack-mode": "on-confirm",
        }

    def _put(self, name: str, shovel: dict[str, Any]) -> None:
        self._asked("PUT", "parameters", "shovel", self._settings.vhost, name, body={"value": shovel})

    def _end(self, name: str) -> None:
        """Delete a shovel, and wait until it has let go of what it had under way."""
        self._asked("DELETE", "parameters", "shovel", self._settings.vhost, name)
        self._wait(lambda: self._state(name) is None, f"the shovel {name!r} was deleted, and runs on")

    def _parameter(self, name: str) -> str | None:
        found = self._asked("GET", "parameters", "shovel", self._settings.vhost, name)
        if found is None:
            return None
        if not isinstance(found, dict) or not isinstance(found.get("value"), dict):
            raise SojournError(f"the shovel {name!r} is told as nonsense")
        return json.dumps(found["value"], sort_keys=True)

    def _state(self, name: str) -> str | None:
        """``starting``, ``running`` or ``terminated``; None where there is no shovel of that name."""
        found = self._asked("GET", "shovels", self._settings.vhost)
        if not isinstance(found, list):
            raise Refused("the node tells nothing of shovels: enable its plugin rabbitmq_shovel_management")
        told = [one for one in found if isinstance(one, dict) and one.get("name") == name]
        return str(told[0].get("state")) if told else None

    def _queue(self, name: str) -> Any:
        return self._asked("GET", "queues", self._settings.vhost, name)

    def _wait(self, done: Any, otherwise: str) -> None:
        deadline = time.monotonic() + self._settings.timeout
        while not done():
            if time.monotonic() > deadline:
                raise Unverified(otherwise)
            time.sleep(_LOOK_AGAIN)

    def _asked(self, method: str, *path: str, body: Any = None) -> Any:
        try:
            return call(self._settings, method, *path, body=body)
        except CredentialsRefused as error:
            raise Refused(str(error)) from None
