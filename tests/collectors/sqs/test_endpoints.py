"""Where AWS answers, by botocore's data."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from collectors.sqs.settings import SqsBroker


@pytest.mark.parametrize(
    ("chosen", "url", "cloudwatch"),
    [
        ({"region": "eu-west-1"}, "sqs.eu-west-1.amazonaws.com", "monitoring.eu-west-1.amazonaws.com"),
        ({"region": "cn-north-1"}, "sqs.cn-north-1.amazonaws.com.cn", "monitoring.cn-north-1.amazonaws.com.cn"),
        ({"region": "us-iso-east-1"}, "sqs.us-iso-east-1.c2s.ic.gov", "monitoring.us-iso-east-1.c2s.ic.gov"),
        (
            {"region": "us-east-2", "fips": True},
            "sqs-fips.us-east-2.amazonaws.com",
            "monitoring-fips.us-east-2.amazonaws.com",
        ),
        ({"region": "us-east-2", "dual_stack": True}, "sqs.us-east-2.api.aws", "monitoring.us-east-2.api.aws"),
    ],
)
def test_each_partition_has_its_names(chosen: dict[str, Any], url: str, cloudwatch: str) -> None:
    broker = SqsBroker.model_validate(chosen)
    assert (broker.url, broker.cloudwatch_url) == (f"https://{url}", f"https://{cloudwatch}")


def test_what_a_region_does_not_have_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ValidationError):
        SqsBroker.model_validate({"region": "us-iso-east-1", "dual_stack": True})
    with pytest.raises(ValidationError, match="leave endpoint out"):
        SqsBroker.model_validate({"endpoint": "http://127.0.0.1:9324", "fips": True})
