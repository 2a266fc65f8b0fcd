"""The typed client of the API."""
