"""The client for asynchronous code."""
