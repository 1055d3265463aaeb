"""From alerts to webhooks: grouping, deciding what is news, and delivering it at least once."""
