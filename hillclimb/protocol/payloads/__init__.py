"""Payloads: the JSON of the API's responses, shared by the service and its clients."""
