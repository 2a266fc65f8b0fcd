"""Checks a server the way a run uses it: the same sessions, tools, rewards and limits."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

import httpx
from pydantic import JsonValue

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.errors import RolloutError
from hillclimb.process.network.addresses import AllowedHosts
from hillclimb.spec.environment.openenv import OpenEnvServer
from trainer.envs.openenv.actions import Actions
from trainer.envs.openenv.check.arguments import draw_arguments, schema_problem
from trainer.envs.openenv.check.finding import ServerFinding, note, ok, wrong
from trainer.envs.openenv.env import OpenEnvEpisode
from trainer.envs.openenv.rewards import RewardScale
from trainer.envs.openenv.session import action_schema
from trainer.errors import SpecError

SLOW_STEP_S = 1.0
"""Longest step that a run on a laptop does not notice (seconds)."""
UNKNOWN_ARGUMENT = "no_argument_of_this_name"
SECOND_SESSION_S = 5.0
"""Longest wait for a second session beside a first one (seconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """Plan of a check: a server, the arguments of its resets, and how much to play."""

    server: OpenEnvServer
    resets: Sequence[Mapping[str, JsonValue]]
    """Arguments of the server's reset, one set per task."""
    episodes: int
    max_turns: int
    deadline_s: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; the values are secrets."""
    have_prompts: bool = False
    """The tasks have prompts of their own."""
    seed: int = 0


@dataclass(slots=True)
class _Played:
    """Record of what random play has seen."""

    scores: list[float] = field(default_factory=list)
    ended: int = 0
    steps_s: list[float] = field(default_factory=list)
    ungraded: list[str] = field(default_factory=list)


class ServerCheck:
    """Checks one server; `run` returns its findings in order."""

    def __init__(self, plan: CheckPlan) -> None:
        self._plan = plan
        # Whoever starts the check names the server, and sits at this machine.
        self._allowed = AllowedHosts.of_trainer({}).with_server(plan.server.url)
        self._actions: Actions | None = None
        self._tools: tuple[ToolSpec, ...] = ()

    async def run(self) -> list[ServerFinding]:
        """Check from the outside in, and stop where nothing further can work."""
        findings = [await self._answers()]
        if self._actions is None:
            return findings
        try:
            findings += await self._resets()
            if not self._tools:
                return findings
            findings += self._schemas()
            findings.append(await self._is_concurrent())
            findings.append(await self._reports_mistakes())
            findings += await self._plays()
        except RolloutError as fault:
            findings.append(wrong("fails", f"It fails: {fault}."))
        except TimeoutError:
            late = f"It did not answer within {self._plan.deadline_s:g} s."
            findings.append(wrong("fails", f"{late} Calls may be slow, but not for ever."))
        return findings

    async def _answers(self) -> ServerFinding:
        began, url = time.perf_counter(), self._plan.server.url
        try:
            schema = await action_schema(self._plan.server, self._plan.headers, self._allowed)
        except httpx.HTTPStatusError as fault:
            status = fault.response.status_code
            what = f"{url} answers {status} to GET /schema"
            if status in (401, 403):
                return wrong("protocol", f"{what}: {self._about_key()}")
            return wrong("protocol", f"{what}: it is no OpenEnv server, or under another path.")
        except httpx.DecodingError as fault:
            return wrong("protocol", f"{url} is no OpenEnv server: {fault}.")
        except httpx.HTTPError as fault:
            why = str(fault) or type(fault).__name__
            return wrong("answers", f"{url} does not answer ({why}): start the server.")
        except ValueError as fault:
            return wrong("answers", f"{url} is no address: {fault}.")
        self._actions = Actions(schema=schema, text_field=self._plan.server.text_field)
        return ok("answers", f"It answers in {(time.perf_counter() - began) * 1000:.0f} ms.")

    def _about_key(self) -> str:
        if self._plan.headers:
            return f"it refuses what the check sends as {', '.join(self._plan.headers)}."
        return "it asks for a key, and the check sends none (--header-from NAME:VARIABLE)."

    @asynccontextmanager
    async def _episode(self, reset: Mapping[str, JsonValue]) -> AsyncIterator[OpenEnvEpisode]:
        async def actions() -> Actions:
            assert self._actions is not None
            return self._actions

        scale = RewardScale("ENV", self._plan.server)
        headers = self._plan.headers
        episode = OpenEnvEpisode(self._plan.server, headers, actions, reset, scale, self._allowed)
        try:
            async with asyncio.timeout(self._plan.deadline_s):
                self._tools = await episode.reset()
            yield episode
        finally:
            await episode.close()

    async def _resets(self) -> list[ServerFinding]:
        reset = self._plan.resets[0]
        try:
            async with self._episode(reset) as episode:
                first = episode.prompt, self._tools
            async with self._episode(reset) as episode:
                second = episode.prompt, self._tools
        except TimeoutError:
            late = f"Its reset did not end within {self._plan.deadline_s:g} s."
            return [wrong("reset", late)]
        except RolloutError as fault:
            hint = f"Its reset with {dict(reset)} fails: {fault}."
            return [wrong("reset", f"{hint} The server's own log says why.")]
        if not self._tools:
            return [wrong("reset", "It offers no tool, so a model can do nothing.")]
        if first != second:
            what = "prompt" if first[0] != second[0] else "tools"
            again = f"Two resets with {dict(reset)} give different {what}s: draw at random from"
            return [wrong("deterministic", f"{again} the seed that reset gets, and from nothing.")]
        return [
            ok("deterministic", "Two resets with the same arguments give the same."),
            self._prompt(first[0]),
        ]

    def _prompt(self, prompt: str) -> ServerFinding:
        if prompt:
            return ok("prompt", f"Its reset tells the model {len(prompt)} characters.")
        if self._plan.have_prompts:
            return ok("prompt", "Its reset tells the model nothing; the tasks have prompts.")
        silent = "Its reset tells the model nothing: a task must have its own prompt (a dataset)."
        return note("prompt", silent)

    def _schemas(self) -> list[ServerFinding]:
        findings = []
        for tool in self._tools:
            if problem := schema_problem(tool.parameters):
                findings.append(wrong("schema", f"Of the tool {tool.name}, {problem}."))
            elif not tool.description.strip():
                lacks = f"The tool {tool.name} has no description: a model reads nothing else"
                findings.append(note("schema", f"{lacks} about it (its docstring)."))
        names = ", ".join(tool.name for tool in self._tools)
        return findings or [ok("schema", f"The schemas of its tools parse: {names}.")]

    async def _is_concurrent(self) -> ServerFinding:
        reset = self._plan.resets[0]
        try:
            async with self._episode(reset), asyncio.timeout(SECOND_SESSION_S):
                async with self._episode(reset):
                    pass
                return ok("concurrent", "It plays two episodes at once.")
        except TimeoutError:
            alone = "It plays one episode at a time: set SUPPORTS_CONCURRENT_SESSIONS and the last"
            rest = "argument of create_app, or environment.max_concurrent_rollouts to 1."
            return wrong("concurrent", f"{alone} {rest}")

    async def _reports_mistakes(self) -> ServerFinding:
        actions = self._actions
        assert actions is not None
        if not actions.are_tools:
            return ok("mistakes", "It has one action, whose arguments the trainer checks.")
        tool = self._tools[0]
        async with self._episode(self._plan.resets[0]) as episode:
            bad: dict[str, JsonValue] = {UNKNOWN_ARGUMENT: 1}
            async with asyncio.timeout(self._plan.deadline_s):
                answer = await episode.call(tool.name, bad)
                if answer.is_error:
                    return ok("mistakes", "It reports a wrong argument, and the episode goes on.")
        lets = f"It takes a call of {tool.name} with an argument that is not in its schema for a"
        return note("mistakes", f"{lets} good one.")

    async def _plays(self) -> list[ServerFinding]:
        seen = _Played()
        for number in range(self._plan.episodes):
            reset = self._plan.resets[number % len(self._plan.resets)]
            try:
                await self._play(reset, random.Random(self._plan.seed + number), seen)
            except SpecError as outside:
                return [wrong("reward", f"{_own_words(outside)}")]
        return [_done(seen, self._plan), _reward(seen), _speed(seen)]

    async def _play(
        self, reset: Mapping[str, JsonValue], draw: random.Random, seen: _Played
    ) -> None:
        async with self._episode(reset) as episode:
            for _ in range(self._plan.max_turns):
                tool = draw.choice(self._tools)
                began = time.perf_counter()
                async with asyncio.timeout(self._plan.deadline_s):
                    result = await episode.call(tool.name, draw_arguments(tool.parameters, draw))
                seen.steps_s.append(time.perf_counter() - began)
                if result.ends_episode:
                    seen.ended += 1
                    break
            grade = await episode.score()
            if grade.score is None:
                seen.ungraded.append(grade.reason or "no reason")
            else:
                seen.scores.append(grade.score)


def _own_words(outside: SpecError) -> str:
    """Return the sentence about a reward outside of its range, without the name of a spec's key."""
    text = str(outside).removeprefix("environment.openenv.ENV.")
    return f"Of its rewards: {text}, in the spec and as --reward-range here."


def _done(seen: _Played, plan: CheckPlan) -> ServerFinding:
    if seen.ended:
        return ok("done", f"{seen.ended} of {plan.episodes} episodes of random calls were done.")
    never = f"None of {plan.episodes} episodes of {plan.max_turns} random calls was done: a model"
    return note("done", f"{never} ends them itself, or by `done` if it plays better than chance.")


def _reward(seen: _Played) -> ServerFinding:
    if seen.ungraded:
        number, first = len(seen.ungraded), seen.ungraded[0]
        return wrong("reward", f"{number} episodes have no grade: {first}.")
    low, high = min(seen.scores), max(seen.scores)
    inside = f"The scores of {len(seen.scores)} episodes lie between {low:.2f} and {high:.2f}"
    if low == high == 0.0:
        return note("reward", f"{inside}: random play never earns any, see docs/own-environment.md")
    if low == high:
        return note("reward", f"{inside}: a reward that is always the same teaches nothing.")
    return ok("reward", f"{inside}, so there is something to learn.")


def _speed(seen: _Played) -> ServerFinding:
    if not seen.steps_s:
        return note("speed", "No step was taken.")
    middle, longest = median(seen.steps_s), max(seen.steps_s)
    took = f"A step takes {middle * 1000:.0f} ms, the longest of {len(seen.steps_s)} took"
    sentence = f"{took} {longest * 1000:.0f} ms."
    return note("speed", sentence) if longest > SLOW_STEP_S else ok("speed", sentence)
