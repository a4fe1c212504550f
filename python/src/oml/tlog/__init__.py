"""The transparency logs: one Merkle tree a chain, published outside the database."""
