"""Fleet's protocols: REST calls, MCP sessions, faults, retries."""
