"""The laws of backpressure: pure functions of data and ``now`` that return a decision and its reason.

They know no clock, lake, broker or setting file and import nothing but the standard library and who counts as one
(:mod:`sojourn.client.groups`), so that the controller (:mod:`alerts.control`) and the simulation (:mod:`lab`) run the
very same code.
"""
