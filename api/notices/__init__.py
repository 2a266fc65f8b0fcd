"""Notices to people: message bodies, the outbox, and Slack's Web API."""
