"""Tools that read the results of runs: evaluations, verdicts, signal, patterns, rollouts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hillclimb.cli.agents.tools.tool import (
    AgentTool,
    Arguments,
    Json,
    RunId,
    Step,
    ToolContext,
    compact,
    facts,
)

EnvKey = Annotated[str, Field(max_length=300)]
Side = Annotated[str, Field(min_length=1, max_length=120, description="RUN or RUN@STEP.")]
RATE = ("pass_at_1", "low", "high", "n", "passes", "num_tasks", "coverage", "pass_at_n")
CHANGE = (
    "before",
    "after",
    "delta",
    "n",
    "num_gained",
    "num_lost",
    "p_value",
    "p_adjusted",
    "num_tasks_to_decide",
    "verdict",
)
ROLLOUT = (
    "rollout_id",
    "step",
    "env_key",
    "task_key",
    "split",
    "decoding",
    "status",
    "score",
    "passed",
    "cause",
    "patterns",
    "stop_reason",
    "num_turns",
    "num_tool_errors",
)
MAX_SERIES = 40
MAX_POINTS = 60
MAX_FLIPS = 10
MAX_CHARS = 20_000


class RunOf(Arguments):
    """A run."""

    run_id: RunId


class ReportArguments(RunOf):
    """Two evaluations of a run."""

    before: Step | None = None
    """Step; null: the first evaluation."""
    after: Step | None = None
    """Step; null: the last evaluation."""


class CompareArguments(Arguments):
    """Two evaluations, of two runs or of one."""

    a: Side
    b: Side


class SignalArguments(RunOf):
    """A run, the number of its newest steps, and an environment."""

    window: Annotated[int, Field(ge=1, le=100_000)] | None = None
    env: EnvKey | None = None


class MetricsArguments(RunOf):
    """A run and the metrics to read."""

    names: Annotated[str, Field(max_length=1000)] = "reward/avg_*"
    """Names or globs that commas separate: `reward/avg_*,policy/approx_kl`."""


class PatternsArguments(RunOf):
    """Two evaluations of a run, and an environment."""

    before: Step | None = None
    after: Step | None = None
    env: EnvKey | None = None


class TrajectoriesArguments(RunOf):
    """Filters of rollouts."""

    env: EnvKey | None = None
    step: Step | None = None
    split: Literal["train", "eval"] | None = None
    failed: bool | None = None
    """True: graded rollouts that did not pass; false: those that did."""
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    cursor: Annotated[str, Field(max_length=1000)] | None = None


class TrajectoryArguments(RunOf):
    """A rollout to read."""

    rollout_id: Annotated[str, Field(min_length=1, max_length=500)]
    max_chars: Annotated[int, Field(ge=200, le=100_000)] = MAX_CHARS
    """Longest conversation to return; the end of what is longer is left out."""


def evaluations(call: ToolContext, request: RunOf) -> Json:
    """Return pass@1 with intervals of every evaluation."""
    payload = call.client.evals(request.run_id)
    return {
        "evaluations": [
            {
                "step": each.step,
                "decoding": each.decoding,
                "all": facts(each.all, *RATE),
                "envs": {key: facts(rate, *RATE) for key, rate in each.envs.items()},
            }
            for each in payload.data
        ]
    }


def verdicts(call: ToolContext, request: ReportArguments) -> Json:
    """Return the paired comparison of two evaluations of a run, with verdicts."""
    report = call.client.report(request.run_id, before=request.before, after=request.after)
    environments = report.environments.items()
    return {
        **facts(report, "run_id", "before_step", "after_step", "rule", "num_candidates"),
        "decodings": {name: facts(each, *CHANGE) for name, each in report.comparisons.items()},
        "environments": {
            key: {name: facts(each, *CHANGE, "failures") for name, each in by_decoding.items()}
            for key, by_decoding in environments
        },
    }


def compare(call: ToolContext, request: CompareArguments) -> Json:
    """Return how two evaluations differ."""
    payload = call.client.compare(request.a, request.b)
    return {
        **facts(payload, "a", "b", "rule", "num_candidates", "config_diff"),
        "decodings": {
            name: {
                "all": facts(each.all, *CHANGE),
                "environments": {
                    key: facts(change, *CHANGE) for key, change in each.environments.items()
                },
                "gained": [facts(task) for task in each.gained[:MAX_FLIPS]],
                "lost": [facts(task) for task in each.lost[:MAX_FLIPS]],
            }
            for name, each in payload.decodings.items()
        },
    }


def signal(call: ToolContext, request: SignalArguments) -> Json:
    """Return the share of groups with signal and its reading, per environment."""
    report = call.client.signal(request.run_id, window=request.window, env=request.env)
    return {
        **facts(report, "run_id", "first_step", "last_step", "clip_ratio", "all"),
        "environments": {
            key: {name: each for name, each in facts(env).items() if name != "steps"}
            for key, env in report.environments.items()
        },
    }


def metrics(call: ToolContext, request: MetricsArguments) -> Json:
    """Return series of metrics as pairs of step and value, thinned to a bounded number."""
    payload = call.client.metrics(request.run_id, names=request.names, max_points=MAX_POINTS)
    series = [
        {
            "name": each.name,
            "decoding": each.decoding,
            "points": compact([(point.step, point.value) for point in each.points]),
        }
        for each in payload.data[:MAX_SERIES]
    ]
    return {"metrics": series, "has_more": payload.has_more or len(payload.data) > MAX_SERIES}


def patterns(call: ToolContext, request: PatternsArguments) -> Json:
    """Return the failure patterns before and after."""
    report = call.client.patterns(
        request.run_id, before=request.before, after=request.after, env=request.env
    )
    present = [each for each in report.data if each.num_before or each.num_after]
    names = ("name", "severity", "num_before", "num_after", "delta", "status", "exemplars")
    return facts(report, "before_step", "after_step", "decoding", "version") | {
        "patterns": [facts(each, *names) for each in present]
    }


def trajectories(call: ToolContext, request: TrajectoriesArguments) -> Json:
    """List rollouts with their outcomes."""
    page = call.client.trajectories(
        request.run_id,
        env=request.env,
        step=request.step,
        split=request.split,
        failed=None if request.failed is None else str(request.failed).lower(),
        limit=request.limit,
        cursor=request.cursor,
    )
    listed = [facts(each, *ROLLOUT) for each in page.data]
    return {"trajectories": listed} | ({"next_cursor": page.next_cursor} if page.has_more else {})


def trajectory(call: ToolContext, request: TrajectoryArguments) -> Json:
    """Return one rollout as a conversation, without tokens."""
    rollout = call.client.trajectory(request.run_id, request.rollout_id)
    stored = rollout.trajectory
    turns: list[Json] = []
    left = request.max_chars
    for turn in stored.turns:
        names = ("response", "tool_name", "tool_arguments", "observation", "is_error")
        text = facts(turn, *names)
        left -= sum(len(str(part)) for part in text.values())
        if left < 0:
            break
        turns.append(text)
    cut = len(stored.turns) - len(turns)
    return {
        **facts(rollout, *ROLLOUT),
        "prompt": stored.task.prompt[: request.max_chars],
        "turns": turns,
        **({"num_turns_left_out": cut} if cut else {}),
    }


TOOLS = (
    AgentTool(
        name="evaluations",
        summary="Return pass@1 with 95 % intervals of every evaluation of a run.",
        arguments=RunOf,
        answer=evaluations,
    ),
    AgentTool(
        name="verdicts",
        summary="Compare two evaluations of one run: changes, p-values, verdicts, failure causes.",
        arguments=ReportArguments,
        answer=verdicts,
    ),
    AgentTool(
        name="compare",
        summary="Compare evaluations of two runs: changes, verdicts, differences of their specs.",
        arguments=CompareArguments,
        answer=compare,
    ),
    AgentTool(
        name="signal",
        summary="Return the share of groups whose rewards differ, and its reading in a sentence.",
        arguments=SignalArguments,
        answer=signal,
    ),
    AgentTool(
        name="metrics",
        summary="Return training metrics by name or glob, as pairs of step and value.",
        arguments=MetricsArguments,
        answer=metrics,
    ),
    AgentTool(
        name="patterns",
        summary="Return how the policy fails: failure patterns before and after, with examples.",
        arguments=PatternsArguments,
        answer=patterns,
    ),
    AgentTool(
        name="trajectories",
        summary="List rollouts with their outcomes, for example those that failed.",
        arguments=TrajectoriesArguments,
        answer=trajectories,
    ),
    AgentTool(
        name="trajectory",
        summary="Return one rollout as a conversation: prompt, replies, tool calls, results.",
        arguments=TrajectoryArguments,
        answer=trajectory,
    ),
)
