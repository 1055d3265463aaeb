"""After a long downtime: the newest events first, and history beside them (docs/catching-up.md)."""
