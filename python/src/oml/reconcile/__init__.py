"""The key-less auditor: compares what is derived with the journal it derives from."""
