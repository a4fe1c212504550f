"""OML: an append-only, signed, hash-chained journal per tenant inside PostgreSQL."""

__version__ = "0.1"
