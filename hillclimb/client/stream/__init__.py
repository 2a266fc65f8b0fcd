"""Streams of a service: server-sent events, and retries while it restarts."""
