"""The fold: partials, marks and samples, commit by commit, into the state of every queue and tenant at each second.

The formulas stay where they are, in :mod:`lake.views`: those that run here are compiled from that very text
(:mod:`lake.formula`). The analysis alone folds; others read what it writes.
"""
