"""Tools that test a hypothesis with runs and write its report."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hillclimb.cli.agents.tools.tool import AgentTool, Arguments, Json, RunId, ToolContext, facts

Key = Annotated[
    str, Field(min_length=1, max_length=60, description="Version label of the experiment.")
]
Text = Annotated[str, Field(max_length=10_000)]
Line = Annotated[str, Field(max_length=300)]
Lines = Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=50)]
MAX_EXPERIMENTS = 50


class ChangeRationale(Arguments):
    """The reason for the change of a key of the spec."""

    key: Line
    """Dotted key: `optimizer.lr`."""
    rationale: Text


class ExperimentWords(Arguments):
    """The words about an experiment; its figures are computed from stored rows."""

    title: Line | None = None
    hypothesis: Text | None = None
    parent: Key | None = None
    """The experiment that it goes on from."""
    watch: Lines | None = None
    """Thresholds that decide, a signed number is a change: `eval/all/pass_at_1 >= +0.05`."""
    changes: Annotated[list[ChangeRationale], Field(max_length=64)] | None = None
    works: Lines | None = None
    fails: Lines | None = None
    next_steps: Lines | None = None
    remarks: Text | None = None


class CreateArguments(ExperimentWords):
    """An experiment to create."""

    key: Key
    baseline: RunId | None = None
    """The run that the others are compared with."""


class EditArguments(ExperimentWords):
    """Parts of an experiment to replace."""

    key: Key


class AddArguments(Arguments):
    """A run to add to an experiment."""

    key: Key
    run_id: RunId
    role: Literal["baseline", "variant"] = "variant"
    arm: Line | None = None
    """Its configuration: runs of one arm are seed replicates."""


class KeyArguments(Arguments):
    """An experiment."""

    key: Key


class ChangelogArguments(Arguments):
    """The number of experiments to read."""

    limit: Annotated[int, Field(ge=1, le=MAX_EXPERIMENTS)] = 5


def create(call: ToolContext, request: CreateArguments) -> Json:
    """Create an experiment."""
    body = request.model_dump(mode="json", exclude_none=True)
    return facts(call.client.experiments.create(body), "key", "title", "runs")


def edit(call: ToolContext, request: EditArguments) -> Json:
    """Replace parts of an experiment."""
    body = request.model_dump(mode="json", exclude_none=True, exclude={"key"})
    return facts(call.client.experiments.edit(request.key, body), "key", "text")


def add(call: ToolContext, request: AddArguments) -> Json:
    """Add a run to an experiment."""
    added = call.client.experiments.add(
        request.key, request.run_id, role=request.role, arm=request.arm
    )
    return facts(added, "key", "runs")


def results(call: ToolContext, request: KeyArguments) -> Json:
    """Return the verdict of an experiment and its arms."""
    return facts(call.client.experiments.results(request.key))


def report(call: ToolContext, request: KeyArguments) -> str:
    """Return the report of an experiment as Markdown."""
    return call.client.experiments.report(request.key)


def changelog(call: ToolContext, request: ChangelogArguments) -> str:
    """Return the changelog of the newest experiments as Markdown."""
    return call.client.experiments.changelog(limit=request.limit)


TOOLS = (
    AgentTool(
        name="experiment_create",
        summary="State a hypothesis with the thresholds that decide it.",
        arguments=CreateArguments,
        answer=create,
        writes=True,
    ),
    AgentTool(
        name="experiment_edit",
        summary="Write what works, what fails, what comes next: the words of the changelog entry.",
        arguments=EditArguments,
        answer=edit,
        writes=True,
    ),
    AgentTool(
        name="experiment_add",
        summary="Add a run to an experiment, as baseline or variant.",
        arguments=AddArguments,
        answer=add,
        writes=True,
    ),
    AgentTool(
        name="experiment_results",
        summary="Return the verdict of an experiment (confirmed, refuted, inconclusive) and why.",
        arguments=KeyArguments,
        answer=results,
    ),
    AgentTool(
        name="experiment_report",
        summary="Return the report of an experiment as Markdown, made from stored rows.",
        arguments=KeyArguments,
        answer=report,
    ),
    AgentTool(
        name="changelog",
        summary="Return the changelog entries of the newest experiments as Markdown.",
        arguments=ChangelogArguments,
        answer=changelog,
    ),
)
