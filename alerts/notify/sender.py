"""Delivers parcels in a thread of its own, so that a slow receiver delays neither evaluations nor other receivers."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
from standardwebhooks.webhooks import Webhook

from alerts.notify.guard import Refused, resolve
from alerts.notify.retry import judge, parse_retry_after
from alerts.settings import ReceiverSettings
from alerts.store.database import connect
from alerts.store.outbox import Delivery, Outbox, Parcel
from lake.errors import UserError

log = logging.getLogger(__name__)
# It would log each request with its url, which may hold a receiver's key.
logging.getLogger("httpx").setLevel(logging.WARNING)

#: Attempts that may be under way towards one receiver at a time.
CONCURRENCY = 4
#: How long stopping waits for attempts under way; what is not answered by then is sent again, with the same id.
GRACE_SECONDS = 2.0


class Receiver:
    """A receiver with its key: makes signed requests."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self.settings = settings
        secret = settings.secret()
        try:
            self._webhook = Webhook(secret) if secret else None
        except Exception as error:  # the library raises what its base64 decoder does
            raise UserError(
                f"receiver {settings.name}: its signing key is not valid",
                "give whsec_ followed by base64 of 24 to 64 bytes",
            ) from error
        self.slots = asyncio.Semaphore(CONCURRENCY)

    def headers(self, parcel: Parcel, now: datetime) -> dict[str, str]:
        """Standard Webhooks' headers: the id of the parcel, the time of the attempt, the signature over all."""
        headers = {
            "content-type": "application/json",
            "user-agent": "Sojourn",
            "webhook-id": parcel.id,
            "webhook-timestamp": str(int(now.timestamp())),
        }
        if self._webhook is not None:
            headers["webhook-signature"] = self._webhook.sign(parcel.id, now, parcel.body)
        return headers


class Sender:
    """The delivering thread. ``start``, then ``wake`` whenever there is something new, then ``stop``."""

    def __init__(self, store: Path, receivers: Iterable[ReceiverSettings]) -> None:
        self._store = store
        self._receivers = {settings.name: Receiver(settings) for settings in receivers}
        self._thread = threading.Thread(target=self._run, name="alert-sender", daemon=True)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._stopping = False
        self._finish = False

    def start(self) -> None:
        """Begin to deliver; parcels that an earlier process left are taken up first."""
        self._thread.start()
        self._ready.wait()

    def wake(self) -> None:
        """There may be something to send: look at once."""
        if self._loop is not None and self._woken is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    def stop(self, *, finish: bool = False, timeout: float = GRACE_SECONDS) -> None:
        """End; with ``finish`` everything that is due is tried once before."""
        self._finish = finish
        self._stopping = True
        self.wake()
        self._thread.join(timeout + (15 if finish else 1))

    @property
    def alive(self) -> bool:
        """Whether the thread still runs; if it died, the process should end and be started again."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            log.exception("the sender cannot go on; what it has not delivered stays in the outbox")
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._ready.set()
        database = connect(self._store)
        outbox = Outbox(database)
        under_way: dict[str, asyncio.Task[None]] = {}
        # Proxies of the environment would connect on our behalf, behind the guard's back.
        async with httpx.AsyncClient(follow_redirects=False, trust_env=False) as client:
            while True:
                self._woken.clear()
                disabled = outbox.disabled()
                for parcel in outbox.due(datetime.now(UTC)):
                    if parcel.id not in under_way:
                        task = asyncio.create_task(self._deliver(client, outbox, parcel, disabled))
                        under_way[parcel.id] = task
                        task.add_done_callback(partial(self._done, under_way, parcel.id))
                if self._stopping and not (self._finish and under_way):
                    break
                await self._sleep(outbox, bool(under_way))
            if under_way:
                await asyncio.wait(under_way.values(), timeout=GRACE_SECONDS)
                for task in under_way.values():
                    task.cancel()
        database.close()

    def _done(self, under_way: dict[str, asyncio.Task[None]], parcel_id: str, task: asyncio.Task[None]) -> None:
        under_way.pop(parcel_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("delivery %s could not be recorded: %s", parcel_id, error)
        if self._woken is not None:
            self._woken.set()

    async def _sleep(self, outbox: Outbox, busy: bool) -> None:
        assert self._woken is not None
        next_at = outbox.next_at()
        wait = 5.0
        if next_at is not None and not busy:
            wait = min(wait, max(0.01, (next_at - datetime.now(UTC)).total_seconds()))
        elif next_at is not None:
            wait = 0.1
        try:
            await asyncio.wait_for(self._woken.wait(), wait)
        except TimeoutError:
            return

    async def _deliver(
        self, client: httpx.AsyncClient, outbox: Outbox, parcel: Parcel, disabled: dict[str, str]
    ) -> None:
        receiver = self._receivers.get(parcel.receiver)
        now = datetime.now(UTC)
        if receiver is None:
            outbox.record(parcel, Delivery(now, "refused", None, "the receiver is no longer configured", None), None)
            return
        settings = receiver.settings
        if disabled.get(settings.name) == settings.url:
            outbox.record(parcel, Delivery(now, "refused", None, "disabled: it answered 410 Gone", None), None)
            return
        async with receiver.slots:
            now, started = datetime.now(UTC), time.perf_counter()
            status: int | None = None
            error: str | None = None
            retry_after = None
            try:
                response = await self._post(client, receiver, parcel, now)
                status = response.status_code
                retry_after = parse_retry_after(response.headers.get("retry-after"), now)
                if not response.is_success:
                    error = f"answered {status}"
            except Refused as refusal:
                outbox.record(parcel, Delivery(now, "refused", None, str(refusal), None), None)
                log.error("receiver %s: %s", settings.name, refusal)
                return
            except (httpx.HTTPError, OSError, TimeoutError) as failure:
                error = f"{type(failure).__name__}: {failure}".removesuffix(": ")
            duration = time.perf_counter() - started
        verdict = judge(
            status,
            attempts=parcel.attempts + 1,
            age=now - parcel.created_at,
            retry_for=settings.retry_for,
            retry_after=retry_after,
            jitter=random.random(),
        )
        if verdict.disable:
            outbox.disable(settings.name, settings.url, now)
            log.error("receiver %s answered 410 Gone: it is disabled until its url changes", settings.name)
        retry_at = datetime.now(UTC) + verdict.retry_in if verdict.retry_in is not None else None
        outbox.record(parcel, Delivery(now, verdict.outcome, status, error, duration), retry_at)
        if verdict.outcome != "delivered":
            log.warning("webhook to %s: %s (%s)", settings.name, error, verdict.outcome)

    async def _post(
        self, client: httpx.AsyncClient, receiver: Receiver, parcel: Parcel, now: datetime
    ) -> httpx.Response:
        settings = receiver.settings
        parts = urlsplit(settings.url)
        async with asyncio.timeout(settings.timeout.total_seconds()):
            address = await resolve(settings.url, allow_private=settings.allow_private)
            host = f"[{address}]" if ":" in address else address
            pinned = urlunsplit(parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host))
            headers = {**receiver.headers(parcel, now), "host": parts.netloc.rpartition("@")[2]}
            auth = httpx.BasicAuth(parts.username, parts.password or "") if parts.username else None
            request = client.build_request(
                "POST",
                pinned,
                content=parcel.body.encode(),
                headers=headers,
                timeout=settings.timeout.total_seconds(),
                extensions={"sni_hostname": parts.hostname},
            )
            # The answer's body is never read: a receiver cannot fill our memory.
            response = await client.send(request, auth=auth, stream=True, follow_redirects=False)
            await response.aclose()
            return response
