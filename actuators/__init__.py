"""Actuators change a setting of somebody else's server for the time of a lease, and put back what was there."""
