"""Other places than the limits API from which an application learns its limits: mirrors that actuators write.

Each module imports its library where it is used; ``pip install`` of the application's own client of that server is all
that is needed. A mirror has limits alone: entitlements and congestion are told by the limits API.
"""
