"""Connections to servers that others name: which addresses they may have, and how to reach them."""
