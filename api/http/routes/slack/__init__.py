"""Routes of the Slack app."""
