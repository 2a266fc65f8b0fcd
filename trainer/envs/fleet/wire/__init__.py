"""The wire of Fleet: REST calls, MCP sessions, faults, retries."""
