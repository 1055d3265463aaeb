"""Amazon SQS, or a server that speaks its JSON protocol: where it answers, who we are there, and signed requests."""
