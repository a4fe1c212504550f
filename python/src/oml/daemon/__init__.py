"""omld: the long-running roles beside the database."""
