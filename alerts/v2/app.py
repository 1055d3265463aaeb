"""The requests of Alertmanager's API, version 2, and of acknowledgements, which it has not.

It stands behind :mod:`lake.web`'s access control, which asks for the token, lets no web page in and bounds bodies. What
is written is attributed: to the name that the request gives, and the address that it came from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from alerts.engine import Snapshot
from alerts.received import firing_of
from alerts.routing.acknowledge import Acknowledgement
from alerts.routing.inhibit import SHIPPED
from alerts.routing.matchers import all_match
from alerts.routing.muting import muting
from alerts.settings import AlertSettings
from alerts.store.given import ApiState, Author, TooMany, Unknown
from alerts.v2.shown import Shown, acknowledgement_json, in_order, silence_json, status_json
from alerts.v2.taken import Bad, acknowledging_in, alerts_in, asked, filters, silence_in
from lake.clock import Clock

#: What is taken of the name by which a sender calls itself.
_LONGEST_AGENT = 100
Answer = Callable[[Request], Awaitable[Response]]


class Api:
    """Answers from the newest ``snapshot`` and ``api_state``."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], api_state: ApiState, settings: AlertSettings, clock: Clock
    ) -> None:
        self._snapshot, self._api_state, self._settings, self._clock = snapshot, api_state, settings, clock
        self._started = clock.wall()
        shipped = SHIPPED if settings.builtin else ()
        self._inhibitions = (*shipped, *(one.rule for one in settings.route.inhibit))

    @property
    def app(self) -> Starlette:
        """The application, to be mounted at ``/api/v2``."""
        paths: dict[str, tuple[Answer, list[str]]] = {
            "/alerts/groups": (self._groups, ["GET"]),
            "/status": (self._status, ["GET"]),
            "/receivers": (self._receivers, ["GET"]),
            "/silence/{id}": (self._silence, ["GET", "DELETE"]),
            "/acknowledgement/{fingerprint}": (self._release, ["DELETE"]),
        }
        routes = [Route(path, _answered(answer), methods=methods) for path, (answer, methods) in paths.items()]
        for path, get, post in (
            ("/alerts", self._alerts, self._receive),
            ("/silences", self._silences, self._post_silence),
            ("/acknowledgements", self._acknowledgements, self._acknowledge),
        ):
            routes.append(Route(path, _answered(get), methods=["GET"]))
            routes.append(Route(path, _answered(post), methods=["POST"]))
        return Starlette(routes=routes)

    def shown(self) -> Shown:
        """What fires now, and what holds it back."""
        now, snapshot, given = self._clock.now(), self._snapshot(), self._api_state.given
        firing = snapshot.firing(firing_of(given.received, now).values())
        labels = {alert.fingerprint: alert.labels for alert in firing}
        held = muting(labels, tuple(given.silences.values()), self._inhibitions, given.acknowledgements, now)
        return Shown(firing, held, self._settings, now, self._clock.ahead)

    async def _alerts(self, request: Request) -> Response:
        wanted = asked(request.query_params.multi_items())
        return JSONResponse(await run_in_threadpool(lambda: self.shown().alerts(wanted)))

    async def _groups(self, request: Request) -> Response:
        wanted = asked(request.query_params.multi_items())
        return JSONResponse(await run_in_threadpool(lambda: self.shown().groups(wanted)))

    async def _receive(self, request: Request) -> Response:
        now, ahead = self._clock.now(), self._clock.ahead
        alerts = alerts_in(await request.body(), now, ahead)
        agent = request.headers.get("user-agent", "")[:_LONGEST_AGENT]
        await run_in_threadpool(self._api_state.receive, alerts, Author(agent, _peer(request)), now, now + ahead)
        return Response()

    async def _silences(self, request: Request) -> Response:
        wanted = filters(request.query_params.multi_items())
        now, ahead = self._clock.now(), self._clock.ahead
        silences = in_order(list(self._api_state.given.silences.values()), now)
        return JSONResponse(
            [
                silence_json(one, now, ahead)
                for one in silences
                if all_match(wanted, {matcher.name: matcher.value for matcher in one.matchers})
            ]
        )

    async def _post_silence(self, request: Request) -> Response:
        now, ahead = self._clock.now(), self._clock.ahead
        wanted = silence_in(await request.body(), now, ahead)
        author = Author(wanted.created_by, _peer(request))
        id = await run_in_threadpool(self._api_state.silence, wanted, author, now, now + ahead)
        return JSONResponse({"silenceID": id})

    async def _silence(self, request: Request) -> Response:
        id = request.path_params["id"]
        now, ahead = self._clock.now(), self._clock.ahead
        if request.method == "DELETE":
            agent = request.headers.get("user-agent", "")[:_LONGEST_AGENT]
            await run_in_threadpool(self._api_state.expire, id, Author(agent, _peer(request)), now, now + ahead)
            return Response()
        known = self._api_state.given.silences.get(id)
        if known is None:
            raise Unknown(f"there is no silence {id}")
        return JSONResponse(silence_json(known, now, ahead))

    async def _acknowledgements(self, _: Request) -> Response:
        ahead = self._clock.ahead
        return JSONResponse(
            [acknowledgement_json(one, ahead) for one in self._api_state.given.acknowledgements.values()]
        )

    async def _acknowledge(self, request: Request) -> Response:
        sent = acknowledging_in(await request.body())
        now, ahead = self._clock.now(), self._clock.ahead
        firing = (await run_in_threadpool(self.shown)).firing
        if all(alert.fingerprint != sent.fingerprint for alert in firing):
            raise Unknown(f"no alert with the fingerprint {sent.fingerprint} fires")
        one = Acknowledgement(sent.fingerprint, sent.createdBy, sent.comment, now)
        await run_in_threadpool(self._api_state.acknowledge, one, _peer(request), now + ahead)
        return JSONResponse(acknowledgement_json(one, ahead))

    async def _release(self, request: Request) -> Response:
        fingerprint = request.path_params["fingerprint"]
        author = Author(request.headers.get("user-agent", "")[:_LONGEST_AGENT], _peer(request))
        shown = self._clock.wall()
        if not await run_in_threadpool(self._api_state.release, [fingerprint], author, shown):
            raise Unknown(f"nobody has acknowledged {fingerprint}")
        return Response()

    async def _receivers(self, _: Request) -> Response:
        return JSONResponse([{"name": receiver.name} for receiver in self._settings.receivers])

    async def _status(self, _: Request) -> Response:
        return JSONResponse(status_json(self._settings, self._started, _version()))


def _answered(answer: Answer) -> Answer:
    """``answer``, with its errors as Alertmanager tells them: a JSON text."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except (Bad, ValueError) as error:
            return _error(400, str(error))
        except Unknown as error:
            return _error(404, str(error))
        except TooMany as error:
            return _error(429, str(error))

    return answered


def _error(status: int, what: Any) -> Response:
    return JSONResponse(what, status)


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _version() -> str:
    try:
        return version("sojourn")
    except PackageNotFoundError:
        return "unknown"
