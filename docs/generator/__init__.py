"""Makes the pages of docs/reference that can be read off the system itself."""
