"""Lint of the tokens that environments' tools use of the model's input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hillclimb.datasets.lint.findings import Finding, finding
from hillclimb.spec.section import Section

EXPLICIT = "given in lint.tool_tokens"
UNCOUNTED = "tools_uncounted"
OVER, CROWDED = "tools_over_budget", "tools_crowd_context"
TOOL_CODES = (OVER, CROWDED)


class ToolCount(Section):
    """Token count of one environment's tool descriptions."""

    tokens: int
    source: str
    """Who says so, in words that follow a comma."""


def find_uncounted(
    tools: Mapping[str, ToolCount], max_input_length: int, num_tasks: Mapping[str, int]
) -> Iterator[Finding]:
    """Report environments whose tools have no token count to compare with the input limit."""
    played = sorted(env_key for env_key, number in num_tasks.items() if number)
    unknown = [env_key for env_key in played if env_key not in tools]
    if unknown:
        message = (
            f"the tools of {len(unknown)} of {len(played)} environments were not held against"
            f" {max_input_length:,} tokens: no run has counted them"
        )
        yield finding(UNCOUNTED, None, len(unknown), message, unknown)


def find_crowded(
    tools: Mapping[str, ToolCount], max_input_length: int, num_tasks: Mapping[str, int]
) -> Iterator[Finding]:
    """Compare token counts of tools with the model's longest input.

    `num_tasks` are the numbers of tasks of the used environments; others are left out.
    """
    for env_key, count in sorted(tools.items()):
        if not num_tasks.get(env_key) or count.tokens <= max_input_length / 2:
            continue
        message = f"the tools take {count.tokens:,} of {max_input_length:,} tokens, {count.source}"
        code = OVER if count.tokens >= max_input_length else CROWDED
        yield finding(code, env_key, num_tasks[env_key], message)
