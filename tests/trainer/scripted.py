"""Small, honest implementations of the ports: a scripted policy and a counting world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from pydantic import JsonValue
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from trainer.contract.sections import EnvironmentSpec, RolloutSpec
from trainer.engines.base import EngineStats
from trainer.envs.base import EnvProvider, Grade, ToolResult, ToolSpec
from trainer.errors import ToolTransport, VerifierUnavailable
from trainer.rollouts.chat import Chat
from trainer.rollouts.collect import Collector
from trainer.rollouts.roller import Roller, RolloutParts
from trainer.rollouts.wave import Wave
from trainer.types import Sample, SamplingParams, Task
from trainer.weights.manifest import Manifest, marks

ADD = '<tool_call>{"name": "add", "arguments": {"n": 1}}</tool_call>'
DONE = "<done>"


def byte_tokenizer() -> Tokenizer:
    """One token per byte, one for `<done>`, and the two ChatML markers."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([DONE])
    return tokenizer


CHAT = Chat(byte_tokenizer())

Policy = Callable[[int, SamplingParams], str]
"""The text of turn `i` (from 0) of a session under the given parameters."""


@dataclass(slots=True)
class ScriptedEngine:
    """Says what a policy function says; keeps every request. `delay_s` is waited per turn."""

    policy: Policy
    delay_s: float = 0.0
    requests: list[tuple[tuple[int, ...], SamplingParams, str, str]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    weight_version: int = 0

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        turn = sum(request[2] == session for request in self.requests)
        self.requests.append((tuple(prompt_ids), params, session, prefix_key))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.in_flight -= 1
        ids = CHAT.encode_turn(self.policy(turn, params))[: params.max_new_tokens]
        return Sample(
            token_ids=ids,
            logprobs=tuple(-0.5 for _ in ids),
            stopped=ids[-1] in params.stop_token_ids,
            weight_versions=(self.weight_version,) * len(ids),
        )

    def release(self, session: str) -> None:
        self.released.append(session)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        return torch.zeros(len(token_ids) - 1)

    async def update(self, weights: Mapping[str, torch.Tensor], version: int) -> Manifest:
        self.weight_version = version
        return Manifest(version, marks(weights.items()))

    def stats(self) -> EngineStats:
        return EngineStats(
            num_sampled_tokens=0, num_prefill_tokens=0, num_cached_tokens=0, busy_s=0.0
        )

    async def close(self) -> None:
        pass


TOOLS = (
    ToolSpec(name="add", description="Add n.", parameters={"type": "object"}),
    ToolSpec(name="end", description="Stop.", parameters={"type": "object"}),
)


@dataclass(slots=True)
class CountingEnv:
    """Counts up; a task is solved when the count is its goal. A call of `end` ends the episode."""

    goal: int
    call_errors: int = 0
    """How many calls get no answer before calls work."""
    verifier_fails: bool = False
    call_delay_s: float = 0.0
    bug: bool = False
    unreachable: bool = False
    count: int = 0
    num_closed: int = 0

    async def reset(self) -> tuple[ToolSpec, ...]:
        if self.unreachable:
            raise ConnectionError("no route")
        return TOOLS

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        await asyncio.sleep(self.call_delay_s)
        if self.bug:
            raise KeyError("a bug of the environment")
        if self.call_errors:
            self.call_errors -= 1
            raise ToolTransport("no answer")
        if name == "end":
            return ToolResult(text="ended", ends_episode=True)
        if name != "add":
            return ToolResult(text=f"no tool {name}", is_error=True)
        self.count += 1
        return ToolResult(text=f"count is {self.count}")

    async def score(self) -> Grade:
        if self.verifier_fails:
            raise VerifierUnavailable("down")
        return Grade(score=float(self.count == self.goal))

    async def close(self) -> None:
        self.num_closed += 1


def solved_by_done(_: int) -> CountingEnv:
    """An environment that is solved at once: workers in other processes can be told to make it."""
    return CountingEnv(goal=0)


@dataclass(slots=True)
class CountingProvider:
    """Makes counting environments; `make_env` decides how the n-th one (from 0) behaves."""

    make_env: Callable[[int], CountingEnv] = lambda _: CountingEnv(goal=1)
    envs: list[CountingEnv] = field(default_factory=list)
    env_keys: tuple[str, ...] = ("counting",)

    def tools_of(self, env_key: str) -> tuple[ToolSpec, ...]:
        return TOOLS

    def make(self, task: Task) -> CountingEnv:
        self.envs.append(self.make_env(len(self.envs)))
        return self.envs[-1]


def a_task(key: str = "t0", env_key: str = "counting") -> Task:
    return Task(key=key, env_key=env_key, prompt="Count to 1.", template="count", difficulty=1)


def a_wave(n: int = 1, *, step: int = 1, temperature: float = 1.0) -> Wave:
    return Wave(
        step=step,
        split="train",
        decoding="train",
        n_samples_per_prompt=n,
        temperatures={"counting": temperature, "other": temperature},
    )


def a_collector(
    engine: ScriptedEngine,
    provider: EnvProvider,
    *,
    environment: EnvironmentSpec | None = None,
    rollout: RolloutSpec | None = None,
    seed: int = 0,
    has_deadlines: bool = True,
) -> Collector:
    environment = environment or EnvironmentSpec()
    parts = RolloutParts(
        engine=engine,
        chat=CHAT,
        provider=provider,
        environment=environment,
        rollout=rollout
        or RolloutSpec(max_input_length=4000, max_generate_length=200, max_sequence_length=4200),
        seed=seed,
        attempt=1,
        has_deadlines=has_deadlines,
    )
    return Collector(Roller(parts), max_concurrent_rollouts=environment.max_concurrent_rollouts)
