"""What the lab found against laws that policies choose: said when settings are checked, for those that may act."""

from __future__ import annotations

from alerts.control.settings import ControlSettings
from alerts.laws import registry


def cautions(settings: ControlSettings) -> list[str]:
    """A line for each policy that may act by a law which is worse than doing nothing in a scenario of the lab."""
    found = []
    for policy in settings.policies:
        worse = registry.law_class(policy.law).worse if policy.law in registry.LAWS else {}
        if worse and policy.mode != "dry_run":
            told = "; ".join(f"{scenario}: {', '.join(what)}" for scenario, what in worse.items())
            found.append(
                f"policy {policy.name!r} may act by {policy.law}, which in the lab is worse than doing nothing in "
                f"{told}. Try it as a dry run first (docs/laws.md)"
            )
    return found
