"""Where AWS' services answer in each region, by botocore's own data: partitions, FIPS and dual-stack names."""

from __future__ import annotations

from functools import lru_cache

from botocore.exceptions import BotoCoreError
from botocore.regions import EndpointResolver
from botocore.session import Session


@lru_cache
def endpoint(service: str, region: str, *, fips: bool = False, dual_stack: bool = False) -> str:
    """The address of ``service`` in ``region``; ValueError where AWS has none of that kind there."""
    resolver = EndpointResolver(Session().get_data("endpoints"))
    try:
        partition = resolver.get_partition_for_region(region)
        found = resolver.construct_endpoint(
            service, region, partition, use_dualstack_endpoint=dual_stack, use_fips_endpoint=fips
        )
    except BotoCoreError as error:
        raise ValueError(str(error)) from None
    if not found:
        raise ValueError(f"AWS has no {service} in {region}")
    return f"https://{found['hostname']}"
