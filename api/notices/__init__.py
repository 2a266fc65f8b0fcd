"""Notices: Slack messages, their delivery from the outbox, and Slack's Web API."""
