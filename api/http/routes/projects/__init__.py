"""Routes of a project itself: its secrets, defaults and webhooks."""
