"""Rents clusters: the port, what to do next about each, and who carries it out."""
