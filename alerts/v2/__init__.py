"""Alertmanager's API, version 2, over what this process knows: amtool and Karma attach, Prometheus sends alerts in."""
