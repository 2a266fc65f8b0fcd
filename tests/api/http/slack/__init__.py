"""The Slack app, through the real application and a fake Slack."""
