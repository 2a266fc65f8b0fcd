"""A project: its access, agent keys, defaults, secrets, webhooks and Slack users."""
