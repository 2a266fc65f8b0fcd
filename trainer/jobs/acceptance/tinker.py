"""The ladder `tinker`: one step of a tiny adapter on a server of the protocol, and a sample."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

import httpx

from hillclimb.process.acceptance.ladder import AcceptanceCheck, CheckFailed
from hillclimb.spec.backend.tinker import TinkerSpec
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.errors import SpecError, TrainerError
from trainer.inputs.accepted_paths import LeaveOf
from trainer.types import SamplingParams
from trainer.workers.tinker.account import TinkerAccount, account_of
from trainer.workers.tinker.engine import TinkerEngine
from trainer.workers.tinker.learner import TinkerLearner, TinkerOptions
from trainer.workers.tinker.service import ModelRequest, TinkerService

TOKENS = tuple(range(10, 26))
"""A sequence that every vocabulary has; its last half counts as drawn by the policy."""
NUM_DRAWN = len(TOKENS) // 2
RANK, LEARNING_RATE = 8, 1e-3
LONGEST = 64
CALL_S, CHECK_S = 240.0, 300.0
LATE = "try again later: the server has a queue, or check that this machine reaches it"
ANSWER_S = 8.0
"""How long the server may take to answer a first request, which has no key and is not repeated."""
NOBODY = "check that this machine reaches the server (proxy, firewall), and TINKER_BASE_URL"
OTHER_SERVER = "correct TINKER_BASE_URL: what answers there has not Tinker's API"
KEY = "set TINKER_API_KEY to a key of this server, and TINKER_BASE_URL to the key's server"
MODEL = "name a model of this server (`--model`)"


def tinker_account(environ: Mapping[str, str]) -> TinkerAccount:
    """Return the server and key that runs use by themselves.

    Raises:
        SpecError: there is no key, or it would travel in the clear.
    """
    return account_of(TinkerSpec(), LeaveOf(experimental=True), environ)


class TinkerLadder:
    """Checks one model of a server with a session, learner and engine as runs have them."""

    def __init__(self, account: TinkerAccount, model: str) -> None:
        self._account = account
        self._request = ModelRequest(
            base_model=model,
            tinker=TinkerSpec(lora_rank=RANK, call_timeout_s=CALL_S),
            max_sequence_length=LONGEST,
            seed=1,
            name=f"accept-{uuid.uuid4().hex[:12]}-a1",
        )
        self._service: TinkerService | None = None
        self._learner: TinkerLearner | None = None
        self._before: tuple[float, ...] = ()

    @property
    def checks(self) -> Sequence[AcceptanceCheck]:
        """The checks, in order."""
        return (
            self._check("key", self._open, KEY),
            self._check("adapter", self._make_adapter, MODEL),
            self._check("scored", self._score, LATE),
            self._check("step", self._step, LATE),
            self._check("moved", self._score_again, LATE),
            self._check("sampled", self._sample, LATE),
            self._check("closed", self._close, LATE),
        )

    async def close(self) -> None:
        """End the session, and with it the adapter."""
        if self._service is not None:
            await asyncio.to_thread(self._service.close)

    def _check(self, name: str, act: Callable[[], Awaitable[str]], remedy: str) -> AcceptanceCheck:
        async def explained() -> str:
            try:
                return await act()
            except SpecError as refusal:
                named = MODEL if "has no model" in str(refusal) else remedy
                raise CheckFailed(str(refusal), named) from refusal
            except TrainerError as error:
                is_late = isinstance(error.__cause__, TimeoutError) or self._service is not None
                raise CheckFailed(str(error), LATE if is_late else OTHER_SERVER) from error

        return AcceptanceCheck(name=name, act=explained, limit_s=CHECK_S, late=LATE)

    async def _open(self) -> str:
        await self._reach()
        self._service = await asyncio.to_thread(TinkerService, self._account, self._request)
        return f"a session, and the server has {self._request.base_model}"

    async def _reach(self) -> None:
        """Ask for an answer of any kind: the SDK tries a wrong address again for minutes."""
        url = self._account.base_url
        try:
            async with httpx.AsyncClient(timeout=ANSWER_S) as http:
                response = await http.get(f"{url}/api/v1/healthz")
        except httpx.TimeoutException as late:
            raise CheckFailed(f"{url} did not answer in {ANSWER_S:g} s", NOBODY) from late
        except httpx.HTTPError as error:
            raise CheckFailed(f"{url}: {error}", NOBODY) from error
        if response.is_server_error:
            raise CheckFailed(f"{url} answers HTTP {response.status_code}", LATE)

    async def _make_adapter(self) -> str:
        options = TinkerOptions(
            algorithm=AlgorithmSpec(),
            optimizer=OptimizerSpec(lr=LEARNING_RATE, max_grad_norm=None),
            lr_warmup_steps=0,
            total_steps=1,
            max_sequence_length=LONGEST,
            vocab_size=max(TOKENS) + 1,
            num_parameters=0,
        )
        self._learner = await asyncio.to_thread(TinkerLearner, self._opened(), options)
        return f"an adapter of rank {RANK}"

    async def _score(self) -> str:
        self._before = await self._logprobs()
        return f"{len(self._before)} log-probs, {sum(self._drawn()):.3f} of the last {NUM_DRAWN}"

    async def _step(self) -> str:
        sequence = TrainingSequence(
            token_ids=TOKENS,
            action_mask=(False,) * (len(TOKENS) - NUM_DRAWN) + (True,) * NUM_DRAWN,
            logprobs=(0.0,) * (len(TOKENS) - NUM_DRAWN) + self._drawn(),
            prompt_length=len(TOKENS) - NUM_DRAWN,
            advantage=1.0,
            temperature=1.0,
        )
        metrics = await self._made().step(Batch(mini_batches=((sequence,),)))
        return f"{metrics['policy/num_updates']:g} update at a learning rate of {LEARNING_RATE:g}"

    async def _score_again(self) -> str:
        before, after = sum(self._drawn()), sum((await self._logprobs())[-NUM_DRAWN:])
        if after <= before:
            raise CheckFailed(
                f"log-prob {before:.6f} before the update and {after:.6f} after it, which should"
                " have raised it",
                "ask the server's operator: updates do not reach its weights, or with another sign",
            )
        return f"log-prob {before:.3f} before the update, {after:.3f} after it"

    async def _sample(self) -> str:
        client = await self._made().sampling_client()
        engine = TinkerEngine(timeout_s=CALL_S, max_length=LONGEST)
        engine.take(client, 1)
        params = SamplingParams(temperature=1.0, max_new_tokens=8, seed=1)
        try:
            sample = await engine.sample(TOKENS, params, session="accept", prefix_key="accept")
        finally:
            await engine.close()
        return f"{len(sample.token_ids)} tokens with log-probs from the updated weights"

    async def _close(self) -> str:
        service, self._service = self._opened(), None
        await asyncio.to_thread(service.close)
        return "the session ended, and with it the adapter"

    async def _logprobs(self) -> tuple[float, ...]:
        return tuple(float(each) for each in await self._made().logprobs(TOKENS))

    def _drawn(self) -> tuple[float, ...]:
        return self._before[-NUM_DRAWN:]

    def _opened(self) -> TinkerService:
        assert self._service is not None
        return self._service

    def _made(self) -> TinkerLearner:
        assert self._learner is not None
        return self._learner
