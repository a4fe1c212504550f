"""The client an application imports."""
