"""Routes: parse, call one service, return."""
