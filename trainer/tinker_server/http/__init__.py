"""The protocol over HTTP: bodies, routes, and the listings of what is on the disk."""
