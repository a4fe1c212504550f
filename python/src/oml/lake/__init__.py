"""The lake: what is derived from the journal's outbox into Delta tables, exactly once."""
