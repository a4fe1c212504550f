"""The transparency log of each chain: who must have seen it, and what can be proved of it."""
