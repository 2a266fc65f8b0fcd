"""Commands for coding agents: their keys, and the MCP server."""
