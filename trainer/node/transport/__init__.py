"""Transports between node and service: HTTP, or the blob store."""
