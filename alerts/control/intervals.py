"""Whether rules are there, and evaluated often enough, for the policies that name them and that they name; and which of
them nobody needs."""

from __future__ import annotations

from collections.abc import Iterable

from alerts.control.settings import ControlSettings
from alerts.durations import format_duration
from alerts.rules.loader import EARLY
from alerts.rules.model import Rule
from alerts.settings import AlertSettings
from lake.errors import UserError


def unused(rule: Rule, control: ControlSettings) -> str | None:
    """Why ``rule`` is not evaluated under these settings, since nobody would use what it says; None if it is."""
    if rule.group == EARLY and not any(policy.early for policy in control.policies):
        return "no policy is `early`, and it is evaluated for those alone"
    if "tenant_groups" in rule.tables and not control.groups:  # what looks for them would cost for nothing
        return "nobody counts as one: there are no [[alert.control.groups]]"
    return None


def check_policies(rules: Iterable[Rule], settings: AlertSettings) -> None:
    """Raises UserError for what :func:`check_intervals` refuses, and for a second signal that no rule gives."""
    rules = list(rules)
    check_intervals(rules, settings)
    names = {rule.name for rule in rules}
    for policy in settings.control.policies:
        for name in policy.confirm:
            if name not in names:
                raise UserError(
                    f"policy {policy.name!r} waits for a second signal of {name!r}, and no rule is called so",
                    "name a rule that is loaded, or leave it out of `confirm`",
                )


def check_intervals(rules: Iterable[Rule], settings: AlertSettings) -> None:
    """Raises UserError for the first rule that is evaluated less often than a policy that it names renews its leases.

    Its limit would end while the tenant is still noisy, and begin anew at the next evaluation: a limit that flaps.
    """
    policies = {policy.name: policy for policy in settings.control.policies}
    for rule in rules:
        interval = settings.interval if rule.interval is None else rule.interval
        for name in rule.actions:
            policy = policies.get(name)  # built-in rules may name one that was taken out
            if policy is not None and interval.total_seconds() > policy.lease_seconds:
                place = f"{rule.source}: {rule.group} / {rule.name}"
                raise UserError(
                    f"{place}: evaluated every {format_duration(interval)}, but policy {name!r} grants leases of "
                    f"{policy.lease_seconds:g} s, which would end before the rule is looked at again",
                    "shorten the interval, or lengthen the policy's lease_seconds",
                )
