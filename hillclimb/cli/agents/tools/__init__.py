"""The tools of the MCP server: one function per tool, over the typed client."""
