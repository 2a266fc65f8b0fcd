"""Routes that serve the dashboard."""
