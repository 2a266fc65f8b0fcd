"""The client's methods, one file per resource: `client.datasets`, `client.results`, ..."""
