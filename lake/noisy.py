"""The verdict on tenants at one instant: noisy, quiet again, or nothing new. The formulas are the views' own.

The rule is the one that Amazon SQS fair queues publish, with a threshold that is fair to few tenants. A tenant turns
noisy on a large share while others wait, and stays so until its backlog is gone or it has sent nothing for five
minutes. A busy tenant always has some messages in flight: its backlog counts as gone, too, once none is left to receive
and it no longer takes more than its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lake.formula import compiled
from lake.views.catalogue import FORMULAS

Array = npt.NDArray[Any]

#: Verdicts on a tenant: the last of its instants that said anything said …
SILENT, NOISY, QUIET = 0, 1, -1

_THRESHOLD, _ENTERS, _TURNS_QUIET = (compiled(FORMULAS[name]) for name in ("threshold", "enters", "turns_quiet"))


def judged(columns: Mapping[str, Any]) -> tuple[Array, Array]:
    """The verdict on each tenant (NOISY, QUIET or SILENT, int8), and whether it enters the noisy ones.

    ``columns``: ``backlog``, ``in_flight``, ``ready``, ``window_processing_sum`` and ``last_arrival_second`` of the
    tenant; ``queue_in_flight``, ``queue_ready``, ``queue_processing_sum`` and ``active_tenants`` of its queue;
    ``at_second``.
    """
    told = dict(columns)
    told["threshold"] = _THRESHOLD(told)
    enters = told["enters"] = _ENTERS(told)
    verdicts = np.where(_TURNS_QUIET(told), QUIET, np.where(enters, NOISY, SILENT))
    return verdicts.astype(np.int8), enters


def share_from_which(active_tenants: int) -> float:
    """The share (0 to 1) of in flight, or of the work, beyond which one of so many tenants with a backlog is noisy."""
    return float(_THRESHOLD({"active_tenants": np.array([active_tenants])})[0])
