"""Why messages wait longer than they did: the rise of AgeOfFirstAttempt, in parts that add up to it."""

from lake.why.law import Cause, Part, Rise, explain
from lake.why.reading import Flow, Told, behind, tell

__all__ = ["Cause", "Flow", "Part", "Rise", "Told", "behind", "explain", "tell"]
