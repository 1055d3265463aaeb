"""Whether rules are evaluated often enough for the policies that they name."""

from __future__ import annotations

from collections.abc import Iterable

from alerts.durations import format_duration
from alerts.rules.model import Rule
from alerts.settings import AlertSettings
from lake.errors import UserError


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
