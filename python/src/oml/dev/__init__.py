"""Private PostgreSQL clusters: the embedded default, the demo and the tests."""
