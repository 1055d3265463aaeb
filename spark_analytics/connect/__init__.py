"""The views for notebooks, by Spark Connect: Spark's own server, behind a gate that lets only questions through."""

from spark_analytics.connect.endpoint import Endpoint, Tls, check_address

__all__ = ["Endpoint", "Tls", "check_address"]
