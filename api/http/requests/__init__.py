"""Requests: their context, bodies, cursors and the threads that serve them."""
