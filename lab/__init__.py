"""A laboratory: queues simulated under the very laws of the alerts' policies, before a policy touches anything.

``lab.run.run("noisy-neighbour", range(5))`` gives rows with means and intervals over seeds.
"""
