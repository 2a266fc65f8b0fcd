"""Replies of environments to a turn without a call."""

NO_CALL_REPLIES = (
    "no tool call found. Write <tool_call>{...}</tool_call>, or <done> when the task is complete.",
    'No tool call found. Use <tool_call>{"name": "...", "arguments": {...}}</tool_call> format.',
    '{"error": "reply with a tool call or done"}',
    "Error: no function call in your message. A tool call is required in every turn.",
    "Please continue. If you have finished, output <done>.",
    "Invalid turn: expected a tool call, found text only.",
)
UNREADABLE = (
    "the tool call is not valid JSON (expecting ',' delimiter)",
    "the tool call is not valid JSON (names and text need double quotes)",
    'the tool call needs a "name"',
    '"arguments" must be a JSON object',
    "the tool call is not readable (an integer is too long)",
    "Error: could not parse the function call: Unterminated string starting at: line 1 column 42",
    'the tool call holds "id" beside "name" and "arguments": put it inside "arguments"',
)
