"""The laws of backpressure: pure functions of data and ``now`` that return a decision and its reason.

They know no clock, lake, broker or setting file and import nothing but the standard library, so that the controller
(:mod:`alerts.control`) and the simulation (:mod:`lab`) run the very same code.
"""
