"""All tools, and how a call becomes a result or a refusal that a machine can read."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from hillclimb.cli.agents.tools import documentation, experiments, results, runs
from hillclimb.cli.agents.tools.tool import AgentTool, Json, ToolContext
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem, ApiUnreachable, HillclimbError
from hillclimb.protocol.spec_problems import sentence_of

TOOLS: tuple[AgentTool, ...] = (
    *runs.TOOLS,
    *results.TOOLS,
    *experiments.TOOLS,
    *documentation.TOOLS,
)
INSTRUCTIONS = (
    "Hillclimb trains tool-use agents by reinforcement learning. Plan a spec before you submit it."
    " Submitted and forked runs cost the grant of your key: the tool `grant` says what is left."
    " Follow a run with `watch` until has_ended is true. Believe `verdicts` and"
    " `experiment_results`, not single figures. A refusal is a result with isError and the keys"
    " code, message, retryable and errors (each with pointer, code, message)."
)
MAX_ERRORS = 20


class Toolbox:
    """The tools over one client."""

    instructions = INSTRUCTIONS

    def __init__(self, client: Client) -> None:
        self._call = ToolContext(client=client, stopping=threading.Event())
        self._tools = {each.name: each for each in TOOLS}

    def described(self) -> Sequence[Json]:
        """Return every tool with its name, description and schema of arguments."""
        return [each.described() for each in self._tools.values()]

    def has(self, name: str) -> bool:
        """Return True if there is a tool of this name."""
        return name in self._tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Json | str, bool]:
        """Return the result of a tool, and True if it is a refusal."""
        tool = self._tools[name]
        try:
            return tool.answer(self._call, tool.arguments.model_validate(arguments)), False
        except ValidationError as error:
            return _invalid(error), True
        except HillclimbError as error:
            return _refusal(error), True

    def stop(self) -> None:
        """End calls that wait."""
        self._call.stopping.set()


def _invalid(error: ValidationError) -> Json:
    details = error.errors(include_url=False, include_input=False)[:MAX_ERRORS]
    errors = [
        {
            "pointer": "".join(f"/{part}" for part in each["loc"]),
            "code": each["type"],
            "message": sentence_of(each),
        }
        for each in details
    ]
    message = "; ".join(f"{each['pointer'] or '/'}: {each['message']}" for each in errors[:3])
    return _body("invalid_arguments", message, errors=errors)


def _refusal(error: HillclimbError) -> Json:
    if isinstance(error, ApiProblem):
        is_retryable = bool(error.body.get("retryable"))
        errors = list(error.body.get("errors") or [])[:MAX_ERRORS]
        return _body(error.code, error.detail, errors=errors, is_retryable=is_retryable)
    if isinstance(error, ApiUnreachable):
        return _body("unreachable", str(error), is_retryable=True)
    return _body("client_error", str(error))


def _body(
    code: str, message: str, *, errors: Sequence[Json] = (), is_retryable: bool = False
) -> Json:
    return {"code": code, "message": message, "retryable": is_retryable, "errors": list(errors)}
