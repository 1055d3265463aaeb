"""The mode of queues, as numbers. The formula is the view's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lake.formula import compiled
from lake.views.catalogue import FORMULAS
from spark_analytics.fold.arrays import Array

BACKLOGGED = "backlogged"
_NUMBERS = {"": 1, "fast": 2, BACKLOGGED: 3}
#: By number; none is an empty text.
MODE_NAMES = {number: name for name, number in _NUMBERS.items()}


class Modes:
    """Tells modes where ``target`` is the age, in seconds, above which a queue is backlogged."""

    def __init__(self, target: float) -> None:
        self._formula = compiled(FORMULAS["mode"].replace("$target", repr(float(target))))

    def of(self, columns: Mapping[str, Any]) -> Array:
        """The modes from the columns that the formula asks for, as the numbers of MODE_NAMES."""
        names = np.asarray(self._formula(columns))
        numbers = np.full(names.shape, _NUMBERS[""], np.int8)
        for name, number in _NUMBERS.items():
            numbers[names == name] = number
        return numbers
