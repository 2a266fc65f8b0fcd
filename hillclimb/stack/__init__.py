"""The embedded stack: real PostgreSQL, Valkey, API, worker, beat and runner under one supervisor.

`hillclimb.stack.control` holds what the command line calls; importing this package costs nothing.
"""
