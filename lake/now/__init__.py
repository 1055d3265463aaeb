"""What is true now, kept current commit by commit: the past folded into one state, the last seconds kept apart.

The `…_now` views need little of history: sums, what is open, and what a few judgements with memory (noisy, mode) came
to. A long-lived reader holds that and adds each commit's rows; it reads each file once. The views' formulas stay where
they are, in :mod:`lake.views`: those that run here are compiled from that very text (:mod:`lake.now.expression`).
"""
