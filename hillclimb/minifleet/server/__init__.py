"""A Fleet server over the miniature apps: Fleet's HTTP and MCP contract on loopback."""
