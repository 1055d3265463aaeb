"""SASL mechanisms of Kafka, in one registry: what each needs to say who we are, and who of us speaks it.

Collectors and analytics, which read the same records off the same clusters, take their settings' choices from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

#: By user and password: spoken by the sampler's own requests, by librdkafka and by Spark's Java client.
ByPassword: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
#: By a table of their own in the settings: spoken by librdkafka alone, for sampler, tap and the collectors' transport.
ByTable: TypeAlias = Literal["OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"]
Mechanism: TypeAlias = ByPassword | ByTable

BY_PASSWORD: tuple[ByPassword, ...] = get_args(ByPassword)
#: Mechanism → the table that says who we are by it.
TABLES: Mapping[str, str] = {"OAUTHBEARER": "oauth", "GSSAPI": "kerberos", "AWS_MSK_IAM": "aws"}

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: Mechanism → the Java class that logs in by it.
JAVA_LOGIN: Mapping[ByPassword, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
