"""Commands about the project: its secrets, defaults and webhooks."""
