"""The Slack app of the service: commands, buttons and forms, carried out as the linked person."""
