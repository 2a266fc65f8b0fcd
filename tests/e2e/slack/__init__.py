"""Conversations with the processes of the service, some of which are killed on the way."""
