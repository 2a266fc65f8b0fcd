"""What people are told: message bodies, the outbox, and Slack's Web API."""
