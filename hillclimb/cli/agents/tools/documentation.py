"""The tool that reads the documentation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hillclimb.cli.agents.tools.tool import AgentTool, Arguments, ToolContext


class PageArguments(Arguments):
    """A page to read."""

    page: Annotated[str, Field(max_length=100)] | None = None
    """`spec`, `runbook`, `training-mechanics`; null: list all pages."""


def docs(call: ToolContext, request: PageArguments) -> str:
    """Return the list of pages, or one page."""
    documentation = call.client.documentation
    return documentation.index() if request.page is None else documentation.page(request.page)


TOOLS = (
    AgentTool(
        name="docs",
        summary="Read the documentation: keys of a spec, symptoms and causes, mechanics.",
        arguments=PageArguments,
        answer=docs,
    ),
)
