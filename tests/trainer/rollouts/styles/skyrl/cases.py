"""The cases that SkyRL's real environment played, with the world that they were played in.

`record.py` plays them with SkyRL's and OpenEnv's code, `test_recorded.py` with ours. This file
imports nothing but the standard library, because the former runs in another Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PARTIAL = (
    ">>> ERROR_ACCUMULATOR >>>\n[]\n<<< ERROR_ACCUMULATOR <<<\n"
    ">>> SUCCESS_ACCUMULATOR >>>\n['a', 'b']\n<<< SUCCESS_ACCUMULATOR <<<\n"
)
"""What a verifier prints that passed every check and returned 0."""
HALF = PARTIAL.replace("[]", "['c', 'd']")
LONG = "x" * 12_000

ADD = '<tool_call>{"name": "add", "arguments": {"n": 1}}</tool_call>'
DONE = "<done>"


def call(name: str, arguments: str = "{}") -> str:
    """Return a call whose arguments are written as they are."""
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


TOOLS: list[dict[str, Any]] = [
    {
        "name": "add",
        "description": "Add n – to the count.",
        "inputSchema": {
            "type": "object",
            "title": "add",
            "properties": {"n": {"title": "N", "type": "integer", "default": 1}},
            "required": ["n"],
        },
    },
    *(
        {"name": name, "description": f"Answers: {name}.", "inputSchema": {"type": "object"}}
        for name in ("long", "json", "failed", "error", "text", "list", "empty", "number", "loud")
    ),
]
ANSWERS: dict[str, tuple[str, bool]] = {
    "long": (LONG, False),
    "json": ('{"city":"Brno \u2013 Z\u00fcrich","rooms":[1,2]}', False),
    "failed": ('{"status":"failed","message":"no such room","code":7}', False),
    "error": ('{"error": "closed"}', False),
    "text": ("plain", False),
    "list": ('[{"id": 1}, {"text": "two"}, 3]', False),
    "empty": ("{}", False),
    "number": ("1.50", False),
    "loud": ("it broke", True),
}
"""Text of each tool's answer, and whether MCP marks it as an error."""


class World:
    """Counts up to a goal, and keeps the calls that it answered."""

    def __init__(self) -> None:
        self.count = 0
        self.calls: list[list[Any]] = []

    def answer(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Execute a call and return its text, and whether it is an error."""
        self.calls.append([name, arguments])
        if name != "add":
            return ANSWERS[name]
        self.count += 1
        return f"count is {self.count}", False


@dataclass(frozen=True)
class Case:
    """An episode: the policy's turns, and what differs from a task with the goal 1."""

    name: str
    turns: tuple[str, ...]
    goal: int = 1
    max_turns: int = 8
    partial: bool = False
    verifier: str | None = "count"
    """`count` compares with the goal, `none` returns None; null: the task has none."""
    stdout: str = ""

    def answer(self, world: World) -> dict[str, Any]:
        """Return what the platform says that the verifier returned."""
        score = None if self.verifier == "none" else float(world.count == self.goal)
        return {"success": True, "result": score, "stdout": self.stdout}


@dataclass(frozen=True)
class PromptCase:
    """A task whose system message is recorded."""

    name: str
    env_key: str
    env_variables: dict[str, str] = field(default_factory=dict)
    prompt: str = "Count."


TODAY = "2026-05-18"
PROMPTS = (
    PromptCase("no-variables", "booking"),
    PromptCase(
        "user",
        "booking",
        {
            "CITY": "Brno",
            "LOGGED_IN_NAME": "Ada",
            "CURRENT_DATE": TODAY,
            "LOGGED_IN_USER": "u1",
        },
    ),
    PromptCase("date-alone", "booking", {"CURRENT_DATE": TODAY}),
    PromptCase("fostgres", "fostgres", {"LOGGED_IN_USER": "u1"}),
    PromptCase("answer", "booking", prompt="Count, then use submit_final_answer."),
)

CASES = (
    Case("right at max_turns, the last turn a call", (ADD,), max_turns=1),
    Case("partial at max_turns", (ADD,), 4, max_turns=2, partial=True, stdout=HALF),
    Case("right at max_turns, a turn without a call", ("Hm.", ADD), max_turns=2),
    Case("right at max_turns, the last turn without a call", (ADD, "Hm."), max_turns=2),
    Case("two calls in a turn", (ADD + ADD, DONE)),
    Case("done in brackets", (ADD, "That is all. [done]")),
    Case("done in capitals", (ADD, "<DONE>")),
    Case("done in a thought", (f"<think>then I say <done></think>{ADD}",)),
    Case("done in an argument", (call("add", '{"n": 1, "why": "<done>"}'),)),
    Case("done before a call", (f"{DONE}{ADD}",)),
    Case("done after a call is not sampled", (f"{ADD}{DONE}", DONE)),
    Case("action done", (ADD, call("text", '{"action": "done"}'))),
    Case("call in an unclosed thought", (f"<think>I try {ADD}", DONE)),
    Case("call in a closed thought", (f"<think>{ADD}</think>", DONE)),
    Case("unclosed call", (ADD.removesuffix("</tool_call>"), DONE)),
    Case("call before a special token", ('<tool_call>{"name": "add"}<|x|>', DONE)),
    Case("extra key", ('<tool_call>{"name": "add", "arguments": {}, "id2": 1}</tool_call>', DONE)),
    Case("double key", ('<tool_call>{"name": "x", "name": "add"}</tool_call>', DONE)),
    Case("cut after a number", ('<tool_call>{"name": "add", "arguments": {"n": 1', DONE)),
    Case("three braces short", ('<tool_call>{"name": "add", "arguments": {"n": {"a": 1', DONE)),
    Case("cut in a string", ('<tool_call>{"name": "add", "arguments": {"n": "1', DONE)),
    Case("older spellings", ('<tool_call>{"tool": "add", "params": {"n": 2}}</tool_call>', DONE)),
    Case(
        "function_call",
        ('<function_call>{"name": "add", "arguments": {}}</function_call>', DONE),
    ),
    Case("arguments as text", (ADD, call("add", r'"{\"n\": 1}"'))),
    Case("arguments as text, with done", (ADD, DONE + call("add", '"n"'))),
    Case("arguments as a list", (ADD, call("add", "[1]"))),
    Case("arguments null", (call("add", "null"), DONE)),
    Case("params null", ('<tool_call>{"name": "add", "params": null}</tool_call>', DONE)),
    Case("name without a value", ('<tool_call>{"name": "", "arguments": {}}</tool_call>', DONE)),
    Case("name as a number", ('<tool_call>{"name": 5}</tool_call>', DONE)),
    Case("unknown tool", (call("fly"), ADD, DONE)),
    Case("unreadable call", ("<tool_call>add 1</tool_call>", ADD, DONE)),
    Case("no object", ("<tool_call>[1]</tool_call>", ADD, DONE)),
    Case("no call", ("Hello.", ADD, DONE)),
    *(Case(f"answer: {name}", (call(name), DONE)) for name in ANSWERS),
    Case("verifier None", (DONE,), verifier="none"),
    Case("no verifier", (ADD, DONE), verifier=None),
    Case("0 with every check passed", (DONE,), partial=True, stdout=PARTIAL),
    Case("0 with every check passed, not partial", (DONE,), stdout=PARTIAL),
    Case("0 with half of the checks passed", (DONE,), partial=True, stdout=HALF),
    Case("not solved", (DONE,)),
)
