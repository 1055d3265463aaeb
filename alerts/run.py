"""The alert process: watches the lake, evaluates rules, sends webhooks, lets policies act, serves the API."""

from __future__ import annotations

import gc
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import alerts.control
from alerts.api import access_controlled, application, url_of
from alerts.aside import RULE_SECONDS, rule_worker
from alerts.control.control import Control
from alerts.control.depth.metrics import families
from alerts.control.intervals import check_policies, unused
from alerts.control.receipts import Receipts
from alerts.engine import Engine
from alerts.evidence.exemplars import Exemplars
from alerts.evidence.facts import Facts
from alerts.evidence.pages import Pages
from alerts.freshness import FreshnessProbe
from alerts.metrics import exposition, waiting_in
from alerts.models import RuleEvaluation
from alerts.notify.receipt import tell_receipt
from alerts.notify.sender import Sender
from alerts.received import GROUP as RECEIVED
from alerts.rules.loader import load_rules
from alerts.rules.model import Rule
from alerts.sampled import SampledTenants
from alerts.settings import AlertSettings
from alerts.standby import Address
from alerts.store import ApiState, Exporter, States, connect
from alerts.store.database import Store, StoreError
from alerts.store.export import export_quietly
from alerts.store.translate import translate
from alerts.v2.app import Api
from alerts.views_cache import ViewCache
from lake.address import LOOK_SECONDS, address_of
from lake.clock import Clock
from lake.definitions import Definitions
from lake.errors import SojournError, UserError
from lake.files import only_one, write_atomically
from lake.log_watch import LONGEST_WAIT, LogWatch
from lake.reader import Reader
from lake.state import REMEDY, UNFINISHED, is_unfinished
from lake.store import Lake
from lake.web.server import WebServer, listen, served
from lake.worker.worker import Worker

log = logging.getLogger(__name__)

#: How often the lake is asked whether there is something new, where the kernel does not tell; a look costs a directory
#: look-up a table.
POLL_SECONDS = 0.02
#: Allocations after which Python looks for cycles, which alerts do not make: as often as usual is half of a restart.
COLLECT_AFTER = (20_000, 100, 100)
EXPORT_SECONDS = 0.5
#: A process that reads history ends after so many seconds in which no rule asked for any.
HISTORY_IDLE = 600.0
#: The tables whose growth can change what a rule sees: of finished state the last one that is committed.
TOLD_BY = ("queue_state", "gaps")


def run(
    settings: AlertSettings, lake_root: Path, stop: threading.Event, *, once: bool, receipts: Sequence[str] = ()
) -> None:
    """Evaluate the rules over the lake at ``lake_root`` until ``stop`` is set, or once.

    ``receipts``: the command that works out what an action saved and cost; without it nobody is told.

    UserError for rules, receivers or settings that cannot be used, or if the lake has an alert process already.
    """
    gc.set_threshold(*COLLECT_AFTER)
    rules = _rules(settings)
    lake = Lake(lake_root)
    lake.create()
    store = settings.store_of(lake_root)
    address = Address(settings)

    def evaluating() -> None:
        _run(settings, rules, lake, store, address, stop, receipts, once=once)

    if not isinstance(store, Path):
        with closing(address):
            store.in_turn(evaluating, stop, once=once, standing_by=nullcontext if once else address.standing_by)
        return
    with only_one(lake.state_path("run", "alerts.lock"), "an alert process for this lake"):
        try:
            evaluating()
        except sqlite3.Error as error:
            raise UserError(
                f"{store} cannot be written: {error}", "free disk space or fix the file's permissions"
            ) from error


def _rules(settings: AlertSettings) -> Sequence[Rule]:
    actions = [policy.name for policy in settings.control.policies]
    rules = load_rules(settings.rules, builtin=settings.builtin, actions=actions)
    check_policies(rules, settings)
    rules = tuple(rule for rule in rules if unused(rule, settings.control) is None)
    if any(rule.group == RECEIVED for rule in rules):
        raise UserError(f"a group of rules is called {RECEIVED!r}, as other programs' alerts are", "rename it")
    return rules


def _run(
    settings: AlertSettings,
    rules: Sequence[Rule],
    lake: Lake,
    store: Store,
    address: Address,
    stop: threading.Event,
    receipts: Sequence[str],
    *,
    once: bool,
) -> None:
    with ExitStack() as stack:
        database = connect(store)
        stack.callback(database.close)
        clock = Clock()
        translate(database, clock.now(), clock.epoch)
        api_state = ApiState(store)
        stack.callback(api_state.close)
        exemplars = Exemplars(lake.root)
        stack.callback(exemplars.close)
        sender = Sender(store, settings.receivers, clock, lambda body: pages.refreshed(body))
        token = settings.token()
        folder = lake.state_path("control", "_").parent
        control = alerts.control.build(settings.control, lake.root, folder, token=token, clock=clock)
        stack.callback(control.close)
        api = Api(lambda: engine.snapshot, api_state, settings, clock)
        names = [receiver.name for receiver in settings.receivers]

        def metrics() -> str:
            now = clock.now()
            more = families(control.lookers, control.entitler, now)
            return exposition(engine.snapshot, sender.attempts, waiting_in(store), names, now, more)

        app = application(lambda: engine.snapshot, api.app, control.app, clock, metrics)
        front = access_controlled(app, settings, token, control.token)
        listener = address.listener()
        stack.callback(listener.close)
        url = url_of(listener)
        reader = Reader(lake.root, pinned=True)
        if is_unfinished(lake.root):
            log.warning("%s: %s; until then rules see no queue", UNFINISHED, REMEDY)
        worker = rule_worker()
        if not once:
            worker.keep_spare()
        history = Worker(lake.root, timeout_seconds=RULE_SECONDS, spare=not once, idle_seconds=HISTORY_IDLE)
        stack.callback(history.close)
        views = ViewCache(reader.query, worker, history.query)
        controller = control.controller
        facts = Facts(
            views.held,
            lambda: controller.active_limits.values(),
            lambda: controller.paused,
            lambda: Definitions.load(lake.root).window_seconds,
        )
        pages = Pages(lambda: engine.snapshot, facts, exemplars, settings.links)
        engine = Engine(
            rules,
            settings,
            States(database),
            FreshnessProbe(lake, settings.stale_after),
            reader.query,
            views,
            lambda: Definitions.load(lake.root),
            sender.wake,
            settings.external_url or url,
            api_state,
            SampledTenants(lake, settings.stale_after),
            control.groups.table,
        )
        stack.callback(lambda: engine.close(clock.now()))
        stack.enter_context(served(WebServer(front, listener, front.limits), "alert-api"))
        stack.callback(control.wake)  # long polls would hold up the server's end
        stack.enter_context(_address_told(lake.state_path("run", "alerts.json"), url))
        stack.enter_context(_exporting(store, lake.root))
        if settings.control.keda_port is not None:
            stack.enter_context(_scaling(control, settings, clock))
        sender.start()
        stack.callback(lambda: sender.stop(finish=once))
        if receipts and not once:
            told = partial(tell_receipt, store, settings, sender, clock)
            teller = Receipts(receipts, lake.root, controller, clock, told)
            teller.start()
            stack.callback(teller.stop)
        log.info("%d rules, %d receivers, API at %s", len(rules), len(settings.receivers), url)

        holds = {rule.key: rule.hold for rule in rules}

        def act(evaluations: Sequence[RuleEvaluation]) -> None:
            control.controller.step(clock.now(), evaluations, engine.newest)

        def one_round(new_data: bool) -> None:
            # All views are of one version of the lake, those too that this round leaves to the next for want of time.
            if new_data or not engine.behind:
                reader.advance()
            control.entitler.step(clock.now(), engine.query, clock.ahead)  # first: who waits must not wait for rules
            evaluations = engine.round(clock.now(), new_data=new_data, everything=once, ahead=clock.ahead, act=act)
            exemplars.expect(evaluations, holds, clock.now())
            control.advisor.step(clock.now(), engine.query, clock.ahead)
            if not engine.behind:
                control.controller.rehearsal.step(clock.now(), engine.query, clock.ahead)

        if once:
            one_round(True)
        else:
            _watch(reader, settings, engine, sender, one_round, stop)


def _scaling(control: Control, settings: AlertSettings, clock: Clock) -> AbstractContextManager[None]:
    """KEDA's external scaler. UserError where its port is taken, or gRPC is not installed."""
    try:
        from alerts.control.keda.server import serving
    except ImportError as error:
        raise UserError("KEDA's external scaler needs grpcio", "pip install 'sojourn[keda]'") from error
    listener = listen(settings.host, settings.control.keda_port or 0, "set another keda_port under [alert.control]")
    log.info("KEDA's external scaler at %s:%d", settings.host, listener.getsockname()[1])
    return serving(lambda: control.advisor.capacities(clock.now()), listener, control.token)


def _watch(
    reader: Reader,
    settings: AlertSettings,
    engine: Engine,
    sender: Sender,
    one_round: Callable[[bool], None],
    stop: threading.Event,
) -> None:
    """Run a round whenever the lake has grown, or the interval has passed; skipped rounds are never caught up."""
    poll = POLL_SECONDS if address_of(reader.root) is None else LOOK_SECONDS
    shortest, longest = settings.min_interval.total_seconds(), settings.interval.total_seconds()
    watch = LogWatch(*(reader.place(name) for name in TOLD_BY))
    seen: tuple[int, ...] | None = None
    known, last = seen, -longest
    while not stop.is_set():
        if not sender.alive:
            raise SojournError("webhooks are no longer delivered: the process ends, to be started again")
        try:
            token = reader.token(*TOLD_BY)
            if token != known:
                watch.found()
                known = token
            waited = time.monotonic() - last
            if ((token != seen or engine.behind) and waited >= shortest) or waited >= longest:
                last = time.monotonic()
                one_round(token != seen)
                seen = token
            waits = token != seen or engine.behind
            most = min(poll if waits else LONGEST_WAIT, max(0.001, last + longest - time.monotonic()))
            watch.wait(poll, stop, most)
        except StoreError:
            raise
        except SojournError as error:
            # The lake may be back in a moment; what fires goes on to fire meanwhile.
            log.error("this round is skipped: %s", error)
            stop.wait(1.0)
    watch.close()


@contextmanager
def _address_told(path: Path, url: str) -> Iterator[None]:
    """Tell others on this machine where the API listens, as long as it does."""
    mine = json.dumps({"url": url, "pid": os.getpid()}) + "\n"
    write_atomically(path, mine)
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_text(encoding="utf-8") == mine:  # whoever took over listens elsewhere
                path.unlink()


@contextmanager
def _exporting(store: Store, root: Path) -> Iterator[None]:
    """Copy history into the lake from a thread of its own, once more at the end."""
    done = threading.Event()

    def work() -> None:
        with closing(connect(store)) as database:
            exporter = Exporter(database, Lake(root))
            while not done.wait(EXPORT_SECONDS):
                export_quietly(exporter)
            export_quietly(exporter)

    thread = threading.Thread(target=work, name="alert-export", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(10)
