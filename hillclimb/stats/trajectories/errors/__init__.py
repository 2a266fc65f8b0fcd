"""Errors of tool calls: whether an answer is one, and of which kind."""
