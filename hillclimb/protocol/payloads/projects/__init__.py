"""Payloads of the service itself and of projects: health, secrets, defaults, webhooks."""
