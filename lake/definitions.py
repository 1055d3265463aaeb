"""The few numbers that the metrics' definitions leave open, kept with the lake so that every reader uses the same."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lake.errors import UserError
from lake.files import write_atomically

FILE_NAME = "definitions.json"
#: No lease of a limit is longer (seconds): who holds one has a row in the journal within them.
LONGEST_LEASE_SECONDS = 3600


class Definitions(BaseModel):
    """What a lake's views assume; a lake without a definitions file has the defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window_seconds: int = Field(default=60, ge=1, le=60, description="length of the sliding window of rates")
    target_seconds: float = Field(
        default=30.0, gt=0, description="oldest age above which a queue is `backlogged` rather than `fast`"
    )

    @classmethod
    def load(cls, root: Path) -> Definitions:
        """The definitions of the lake at ``root``."""
        path = root / FILE_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls()
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise UserError(
                f"{path} is not valid: {error.errors()[0]['msg']}", "fix the file or delete it for the defaults"
            ) from error

    def save(self, root: Path) -> None:
        """Keep these definitions with the lake at ``root``."""
        root.mkdir(parents=True, exist_ok=True)
        write_atomically(root / FILE_NAME, self.model_dump_json(indent=2) + "\n")
