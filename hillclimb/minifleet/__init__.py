"""Minifleet: miniature Fleet apps with tasks, tools and verifiers."""
