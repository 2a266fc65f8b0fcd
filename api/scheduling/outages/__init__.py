"""Outages of the service itself: extended deadlines, and the deferral of idle runs."""
