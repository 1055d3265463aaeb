"""Puts the controller together: state, journal, actuators, API."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette

from actuators import reaper
from actuators.undo_log import UndoLog
from alerts.control.actuators import LIMITS_API, Enforcer
from alerts.control.actuators.limits_api import LimitsApi
from alerts.control.actuators.remote import Remote
from alerts.control.actuators.spillover import Spillover
from alerts.control.advisor import Advisor
from alerts.control.api import make_app
from alerts.control.board import Board
from alerts.control.controller import Controller
from alerts.control.depth.looker import Looker
from alerts.control.entitler import Entitler
from alerts.control.groups import Groups
from alerts.control.journal import Journal
from alerts.control.settings import ControlSettings
from alerts.control.state import State
from lake.clock import Clock
from lake.definitions import Definitions
from lake.errors import UserError


@dataclass(frozen=True, slots=True)
class Control:
    """A controller and the ASGI app that serves what it decides, to those who bring ``token`` if there is one."""

    controller: Controller
    entitler: Entitler
    advisor: Advisor
    groups: Groups
    app: Starlette
    token: str | None
    board: Board
    state: State
    undo_log: UndoLog
    remotes: Sequence[Remote | Spillover]
    lookers: Sequence[Looker] = ()

    def wake(self) -> None:
        """Let go of all long polls; call it before stopping the server, which would wait for them."""
        self.board.close()

    def close(self) -> None:
        """Stop; what is in force stays remembered, and its leases run on."""
        self.wake()
        for looker in self.lookers:
            looker.stop()
        for remote in self.remotes:
            remote.close()
        self.state.close()
        self.undo_log.close()


def build(
    settings: ControlSettings,
    lake_root: Path,
    state_dir: Path,
    *,
    token: str | None = None,
    clock: Clock | None = None,
) -> Control:
    """The control part over the lake at ``lake_root``, remembering in ``state_dir``.

    ``token`` is the API's bearer token where ``settings`` name none. Raises UserError for a token that is not set or a
    state that cannot be read.
    """
    token = _token(settings) or token
    state = State(state_dir)
    board = Board(settings.max_waiters)
    clock = clock or Clock()
    undo_log = UndoLog(state_dir)
    remotes: list[Remote | Spillover] = [Remote(one, undo_log, clock) for one in settings.actuators]
    remotes += [Spillover(one) for one in settings.spillovers]
    actuators: dict[str, Enforcer] = {LIMITS_API: LimitsApi(board)}
    actuators |= {one.name: one for one in remotes}
    if undo_log.held():
        reaper.ensure(state_dir)
    definitions = Definitions.load(lake_root)
    journal = Journal(state, lake_root)
    for one in remotes:
        if isinstance(one, Spillover):
            one.start()
    groups = Groups(settings.groups)
    target, window = definitions.target_seconds, definitions.window_seconds
    controller = Controller(settings, target, state, journal, actuators, state_dir, clock, groups, window)
    entitler = Entitler(settings.entitlements, board, controller.note, lambda: controller.paused)
    lookers = [Looker(one, entitler, clock) for one in settings.depth]
    for looker in lookers:
        looker.start()
    advisor = Advisor(settings.capacity, window)
    app = make_app(board, controller, clock, advisor)
    return Control(controller, entitler, advisor, groups, app, token, board, state, undo_log, remotes, lookers)


def _token(settings: ControlSettings) -> str | None:
    if settings.token_env is None:
        return None
    token = os.environ.get(settings.token_env, "").strip()
    if not token:
        raise UserError(f"the environment variable {settings.token_env} is not set", "set it to the API's bearer token")
    return token
