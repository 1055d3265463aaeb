"""The terms of a queue whose broker tells how many messages wait, by how often it tells.

Feedback that comes each T seconds may undo what waits within about T, and no sooner: quicker, it would take away twice
what it sees once, and servers would idle. So what waits is drained within the time between two glances, and never
within less than two tenths of a second, in which producers hear of it (docs/adr/0014 has the figures).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from alerts.laws.entitlement import Terms

#: Within so many seconds producers obey what follows from a glance, by a long poll.
OBEYED_SECONDS = 0.2
#: From what wait on those who are held get less than there is, and how much more they get below it.
EXIT_SECONDS, PROBING = 0.04, 1.25
#: The time between glances is the mean of so many.
MEAN_OF = 3


@dataclass(frozen=True, slots=True)
class GlancedTerms(Terms):
    """What the operator agreed to, and how far glances are apart (seconds)."""

    every_seconds: float = OBEYED_SECONDS

    @classmethod
    def of(cls, terms: Terms) -> GlancedTerms:
        """``terms``, before the first glance."""
        return cls(**asdict(terms))

    def quick(self) -> Terms:
        """See :meth:`Terms.quick`; by how far glances are apart."""
        quick = Terms.quick(self)
        return replace(
            quick,
            exit_seconds=min(quick.exit_seconds, EXIT_SECONDS),
            drain_seconds=max(OBEYED_SECONDS, self.every_seconds),
            probing=PROBING,
        )

    def after(self, glances: list[float]) -> GlancedTerms:
        """The terms after the last of ``glances``, the instants of the last few (seconds)."""
        last = glances[-MEAN_OF - 1 :]
        if len(last) < 2:
            return self
        return replace(self, every_seconds=(last[-1] - last[0]) / (len(last) - 1))
