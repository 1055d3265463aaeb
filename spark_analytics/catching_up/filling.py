"""History, piece by piece beside the live query, until no gap is open."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from lake.store import Lake
from lake.tables import MESSAGE_EVENTS
from spark_analytics.batches.files import Files
from spark_analytics.catching_up.gaps import Gap, Gaps
from spark_analytics.catching_up.log import DataFile, all_files, data_files
from spark_analytics.catching_up.places import Place
from spark_analytics.catching_up.turns import Turns

log = logging.getLogger(__name__)

#: Seconds between two words about how far it is.
TOLD_EACH = 30.0
#: Files of a piece at most: many small ones take longer than their bytes.
MOST_FILES = 256
LOOK_SECONDS = 0.05

#: Brings a batch of plain files into gold: its number and the files; the records in it.
Process = Callable[[int, Files], int]


class Filling:
    """Fills the open gaps in a thread of its own, oldest first, in pieces of about ``piece_bytes``.

    ``process_for`` makes what brings a gap's pieces into gold, once each. Between two pieces whoever waits for a turn
    has it.
    """

    def __init__(self, root: Path, process_for: Callable[[Gap], Process], turns: Turns, piece_bytes: int) -> None:
        self._root = root
        self._process_for = process_for
        self._turns = turns
        self._piece_bytes = piece_bytes
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self.begun = False
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        self.begun = True
        self._thread.start()

    def running(self) -> bool:
        """Whether there are open gaps, and nothing has gone wrong."""
        return not self.begun or self._thread.is_alive()

    def stop(self) -> None:
        """Finish the piece at work, and stop; what is left is for the next run."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            gaps = Gaps(Lake(self._root))
            for gap in gaps.open():
                gaps.write(replace(gap, begun=True))
            for gap in gaps.open():
                if not self._fill(gaps, gap):
                    return
            log.info("history is complete")
        except Exception as error:
            self.error = error

    def _fill(self, gaps: Gaps, gap: Gap) -> bool:
        """Whether the gap was filled; False: stopped before."""
        table, process, told_at = Lake(self._root).path(MESSAGE_EVENTS.name), self._process_for(gap), time.monotonic()
        files = all_files(table, gap.begins) if gap.whole else data_files(table, gap.begins, gap.starts)
        for ends, piece in pieces(files, gap.ends, self._piece_bytes):
            if self._stopping.is_set():
                return False
            gap = gap.planned(ends)
            gaps.write(gap)  # a piece that a crash breaks off must be the same when it is done again
            size = sum(file.size_bytes for file in piece)
            with self._turns.patient():
                process(gap.number, Files.of([file.path for file in piece], size, table))
            gap = gap.advanced(size)
            if time.monotonic() - told_at > TOLD_EACH:
                told_at = time.monotonic()
                log.info("history: %s read", _share(gap))
        # What the gap holds of the log, the live query holds itself once it has planned its first batch.
        while not gaps.live().begun():
            if self._stopping.wait(LOOK_SECONDS):
                return False
        gaps.close(gap)
        return True


def pieces(files: Iterable[DataFile], decided: Place | None, most_bytes: int) -> Iterator[tuple[Place, list[DataFile]]]:
    """``files`` in pieces of at most ``most_bytes``, or one file, each with the place behind it.

    The first ends at ``decided``, whatever its size, if that is given.
    """
    piece: list[DataFile] = []
    size = 0
    for file in files:
        full = bool(piece) and (size + file.size_bytes > most_bytes or len(piece) >= MOST_FILES)
        if full if decided is None else file.behind > decided:
            yield decided or piece[-1].behind, piece
            piece, size, decided = [], 0, None
        piece.append(file)
        size += file.size_bytes
    if decided is not None or piece:
        yield decided or piece[-1].behind, piece


def _share(gap: Gap) -> str:
    read = f"{gap.read_bytes / 2**30:.2f} GiB"
    return read if gap.size_bytes is None else f"{read} of {gap.size_bytes / 2**30:.2f} GiB"
