"""The portable engine: continuous batching over plain torch, token ids in and out.

One asyncio task steps the model in the event loop's own thread. A step decodes one token of every
request in flight and computes new prompt tokens beside them; requests join and leave between
steps. Not a worker thread: a step is many short operations, and each of them would compete with
the rollouts' Python code for the interpreter lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file

from trainer.engines.base import EngineStats, attended_pairs
from trainer.engines.torch.cache import Cache, Span
from trainer.engines.torch.decoder import Decoder
from trainer.engines.torch.delta_net import States, WholeSequence
from trainer.engines.torch.drawing import draw
from trainer.engines.torch.routes import RouteStore
from trainer.engines.torch.sessions import CachedSession, Prefix, Sessions
from trainer.errors import EngineError
from trainer.inputs.model.families.family import CausalLMConfig
from trainer.types import Routes, Sample, SamplingParams
from trainer.weights.digests import NOTHING, WeightDigests, tensor_digests

_YIELDS_AFTER_A_FINISH = 8
"""Passes of the event loop after a request ended, so that its rollout can call its tool and submit
the next turn before the next step. An idle pass costs microseconds; a step without that row runs a
smaller batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchEngineOptions:
    """Sizes of the engine."""

    num_sessions: int = 192
    """Trajectories with a cache at once; the requests of others wait for a free row."""
    max_length: int = 1024
    """Longest sequence in tokens; at most what the model's positions allow."""
    max_prefill_tokens: int = 2048
    """New prompt tokens computed in one step; a longer prompt takes several."""
    device: str = "cpu"
    records_routes: bool = False
    """Record the experts of every token, for requests with `routes_from`."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    session_name: str
    prefix_key: str
    future: asyncio.Future[Sample]
    session: CachedSession | None = None
    pending: list[int] = field(default_factory=list)
    """Tokens to compute before the next one can be drawn."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


_Work: TypeAlias = tuple[_Request | Prefix, list[int]]
"""A row to compute in one step, and the tokens to compute for it."""


class TorchEngine:
    """An `Engine` on one torch device, exact in float32.

    At temperature 0 the token is the most likely one and its log-prob is that at temperature 1.
    """

    def __init__(
        self,
        config: CausalLMConfig,
        weights: Mapping[str, torch.Tensor],
        *,
        options: TorchEngineOptions | None = None,
    ) -> None:
        """Copy `weights` (Hugging Face names, `lm_head.weight` included) and reserve the cache.

        Raises:
            EngineError: a weight is unknown or of another shape.
            SpecError: the architecture is not supported.
        """
        self._options = options or TorchEngineOptions()
        self._max_length = min(self._options.max_length, config.max_position_embeddings)
        self._device = torch.device(self._options.device)
        self._decoder = Decoder(config, max_length=self._max_length, device=self._device)
        self._decoder.load(weights)
        self._cache = Cache(
            num_layers=self._decoder.num_attention_layers,
            num_rows=self._options.num_sessions,
            num_kv_heads=self._decoder.num_kv_heads,
            length=self._max_length,
            head_dim=self._decoder.head_dim,
            device=self._device,
        )
        self._states = None
        if self._decoder.delta_sizes is not None:
            self._states = States(
                self._decoder.delta_sizes,
                num_layers=self._decoder.num_layers - self._decoder.num_attention_layers,
                num_rows=self._options.num_sessions,
                device=self._device,
            )
        self._routes: RouteStore | None = None
        if self._options.records_routes:
            self._routes = RouteStore(config, self._options.num_sessions, self._max_length)
        self._sessions = Sessions(self._options.num_sessions, has_states=self._states is not None)
        self._version = 0
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._updating = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._num_sampled = self._num_prefilled = self._num_cached = self._num_pairs = 0
        self._busy_s = 0.0

    @property
    def weight_version(self) -> int:
        """Version passed to the last `update`."""
        return self._version

    def stats(self) -> EngineStats:
        """Counters since start."""
        return EngineStats(
            num_sampled_tokens=self._num_sampled,
            num_prefill_tokens=self._num_prefilled,
            num_cached_tokens=self._num_cached,
            busy_s=self._busy_s,
            num_attended_pairs=self._num_pairs,
            loop_blocked_s=self._busy_s,
        )

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Continue `prompt_ids`; see `Engine.sample`. Cancelling it releases the session.

        Raises:
            EngineError: prompt and `max_new_tokens` do not fit the context, or the engine failed.
        """
        if not prompt_ids or len(prompt_ids) + params.max_new_tokens > self._max_length:
            raise EngineError(
                f"a prompt of {len(prompt_ids)} tokens and {params.max_new_tokens} new ones do not"
                f" fit the context of {self._max_length}"
            )
        request = _Request(
            prompt_ids=tuple(prompt_ids),
            params=params,
            session_name=session,
            prefix_key=prefix_key or session,
            future=asyncio.get_running_loop().create_future(),
        )
        if any(each.session_name == session for each in self._waiting + self._running):
            # The caller died and retries: two requests would write keys and values to one row.
            self.release(session)
        self._waiting.append(request)
        self._start()
        try:
            return await request.future
        except asyncio.CancelledError:
            self.release(session)
            raise

    def release(self, session: str) -> None:
        """Forget a session's cache; a request of it still in flight raises EngineError."""
        for requests in (self._waiting, self._running):
            for request in [each for each in requests if each.session_name == session]:
                requests.remove(request)
                if not request.future.done():
                    request.future.set_exception(EngineError(f"session {session} was released"))
        self._sessions.release(session)
        self._wake.set()

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        with torch.inference_mode():
            ids = torch.tensor(token_ids, device=self._device)
            hidden = self._decoder.hidden(
                ids[:-1],
                torch.arange(len(ids) - 1, device=self._device),
                _attend_causally,
                WholeSequence(),
            )
            logprobs = self._decoder.logits(hidden).log_softmax(-1)
            return logprobs.gather(1, ids[1:].unsqueeze(1)).squeeze(1).cpu()

    async def update(self, weights: Mapping[str, torch.Tensor], version: int) -> WeightDigests:
        """Load new weights once no request is running, and drop every cache.

        Requests that wait meanwhile are served by the new weights. Names absent from `weights`
        keep their values; the returned digests mark them with `NOTHING`.

        Raises:
            EngineError: a weight is unknown or of another shape.
        """
        async with self._updating:
            while self._running:
                self._idle.clear()
                await self._idle.wait()
            with torch.inference_mode():
                self._decoder.load(weights)
                # Of the decoder's own tensors, not of `weights`: this proves that the copy worked.
                digests = tensor_digests(self._decoder.loaded(weights))
            # Keys and values of the old weights must not serve requests under the new ones.
            self._sessions.clear()
            self._version = version
        self._wake.set()
        return WeightDigests(version, dict.fromkeys(self._decoder.names, NOTHING) | digests)

    async def load_weights_file(self, path: Path, version: int) -> WeightDigests:
        """Load new weights from a safetensors file; see `update`.

        Raises:
            EngineError: the file cannot be read, or a weight is unknown or of another shape.
        """
        try:
            weights = load_file(path)
        except (OSError, SafetensorError) as fault:
            raise EngineError(f"the weights in {path} cannot be read: {fault}") from fault
        return await self.update(weights, version)

    async def close(self) -> None:
        """Stop the background task; requests still in flight raise EngineError."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._task = None

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="torch-engine")
            self._task.add_done_callback(self._fail_all)
        self._wake.set()

    def _fail_all(self, task: asyncio.Task[None]) -> None:
        """Fail every request once the background task has ended: nothing would complete them."""
        cause = None if task.cancelled() else task.exception()
        for request in self._waiting + self._running:
            if not request.future.done():
                fault = EngineError(f"the engine stopped: {cause or 'it was closed'}")
                fault.__cause__ = cause
                request.future.set_exception(fault)
        self._waiting, self._running = [], []
        self._sessions.clear()
        self._idle.set()

    async def _run(self) -> None:
        while True:
            self._admit()
            if not self._running:
                # `update` waits for idle; `sample`, `release` and `update` wake this task.
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
                continue
            started = time.perf_counter()
            with torch.inference_mode():
                num_finished = self._step()
            self._busy_s += time.perf_counter() - started
            # The step blocked the event loop: let the rollouts run before the next one.
            for _ in range(_YIELDS_AFTER_A_FINISH if num_finished else 1):
                await asyncio.sleep(0)

    def _admit(self) -> None:
        """Move waiting requests to the running ones in order of arrival, while rows are free."""
        if self._updating.locked():
            # `update` waits until no request is running: admitting more could delay it for ever.
            return
        blocked: list[_Request] = []
        for request in self._waiting:
            if not self._place(request):
                blocked.append(request)
        if blocked and not self._running:
            # All rows belong to sessions between two turns: without an eviction nothing would run.
            self._sessions.release_oldest()
            if self._place(blocked[0]):
                del blocked[0]
        self._waiting = blocked

    def _place(self, request: _Request) -> bool:
        session = self._sessions.find(request.session_name)
        pending = session.match(request.prompt_ids) if session else None
        if pending is None:
            # A new session, or a prompt that does not extend its prefix: start over.
            self._sessions.release(request.session_name)
            session = self._sessions.open(
                request.session_name, request.prompt_ids, request.prefix_key
            )
            if session is None:
                return False
            pending = session.match(request.prompt_ids)
        assert session is not None
        assert pending is not None
        prefix = session.prefix
        # The statistics charge the prefix to the group's first session; for the others it counts
        # as cached.
        is_first = prefix.num_users == 1 and not prefix.is_ready
        num_new = len(pending) + (len(prefix.token_ids) if is_first else 0)
        self._num_cached += len(request.prompt_ids) - num_new
        self._num_prefilled += num_new
        length = len(request.prompt_ids)
        self._num_pairs += attended_pairs(length - num_new, length)
        request.session, request.pending = session, pending
        self._running.append(request)
        return True

    def _step(self) -> int:
        """Run one forward pass and return the number of requests that finished."""
        decoding, longer = self._choose_work()
        hidden = self._forward(decoding, longer)
        ready: list[_Request] = []
        last: list[int] = []
        # `hidden` is [N, D] in the order of the work. A token is drawn from the last position of
        # each request whose prompt is complete.
        position = 0
        for item, tokens in decoding + longer:
            position += len(tokens)
            if isinstance(item, Prefix):
                item.num_computed += len(tokens)
                continue
            assert item.session is not None
            item.session.token_ids.extend(tokens)
            item.pending = item.pending[len(tokens) :]
            if not item.pending:
                ready.append(item)
                last.append(position - 1)
        return self._draw(ready, hidden[last]) if ready else 0

    def _choose_work(self) -> tuple[list[_Work], list[_Work]]:
        """Choose the work of a step: decoding rows, and longer spans within the prefill budget."""
        decoding: list[_Work] = []
        longer: list[_Work] = []
        budget = self._options.max_prefill_tokens
        prefixes: set[int] = set()
        for request in self._running:
            assert request.session is not None
            prefix = request.session.prefix
            if prefix.is_ready and len(request.pending) == 1:
                decoding.append((request, request.pending))
            elif budget > 0 and prefix.is_ready:
                longer.append((request, request.pending[:budget]))
                budget -= len(longer[-1][1])
            # A prefix that several requests share is computed once; their own tokens follow in a
            # later step.
            elif budget > 0 and prefix.row not in prefixes:
                prefixes.add(prefix.row)
                uncomputed = prefix.token_ids[prefix.num_computed :]
                longer.append((prefix, list(uncomputed[:budget])))
                budget -= len(longer[-1][1])
        return decoding, longer

    def _forward(self, decoding: Sequence[_Work], longer: Sequence[_Work]) -> torch.Tensor:
        decoding_spans = [_span(item, 1) for item, _ in decoding]
        longer_spans = [_span(item, len(tokens)) for item, tokens in longer]
        positions: list[int] = []
        for span in (*decoding_spans, *longer_spans):
            first = span.prefix_length + span.start
            positions.extend(range(first, first + span.length))
        token_ids = [token for _, tokens in (*decoding, *longer) for token in tokens]
        routes = None if self._routes is None else self._routes.blank(len(token_ids), self._device)
        hidden = self._decoder.hidden(
            torch.tensor(token_ids, device=self._device),
            torch.tensor(positions, device=self._device),
            self._cache.plan(decoding_spans, longer_spans),
            None if self._states is None else self._states.plan(decoding_spans, longer_spans),
            routes,
        )
        if self._routes is not None and routes is not None:
            self._routes.record((*decoding_spans, *longer_spans), routes)
        return hidden

    def _draw(self, ready: Sequence[_Request], hidden: torch.Tensor) -> int:
        positions = [len(request.prompt_ids) + len(request.token_ids) for request in ready]
        tokens = draw(
            self._decoder.logits(hidden), [request.params for request in ready], positions
        )
        finished: set[int] = set()
        for request, token, logprob in zip(ready, tokens.token_ids, tokens.logprobs, strict=True):
            request.token_ids.append(token)
            request.logprobs.append(logprob)
            request.pending = [token]
            stopped = token in request.params.stop_token_ids
            if stopped or len(request.token_ids) == request.params.max_new_tokens:
                finished.add(id(request))
                self._finish(request, stopped=stopped)
        self._num_sampled += len(ready)
        self._num_pairs += sum(positions) + len(ready)
        if finished:
            self._running = [item for item in self._running if id(item) not in finished]
        return len(finished)

    def _finish(self, request: _Request, *, stopped: bool) -> None:
        if not request.future.done():
            request.future.set_result(
                Sample(
                    token_ids=tuple(request.token_ids),
                    logprobs=tuple(request.logprobs),
                    stopped=stopped,
                    weight_versions=(self._version,) * len(request.token_ids),
                    routes=self._routes_of(request),
                )
            )

    def _routes_of(self, request: _Request) -> Routes | None:
        """Return the experts of the tokens from `routes_from` on that the cache holds."""
        first, session = request.params.routes_from, request.session
        if self._routes is None or first is None or session is None:
            return None
        num_computed = len(request.prompt_ids) + len(request.token_ids) - 1
        return self._routes.read(session, num_computed)[first:]


def _span(item: _Request | Prefix, length: int) -> Span:
    if isinstance(item, Prefix):
        return Span(
            prefix_row=item.row, prefix_length=0, row=item.row, start=item.num_computed,
            length=length,
        )  # fmt: skip
    assert item.session is not None
    prefix = item.session.prefix
    return Span(
        prefix_row=prefix.row,
        prefix_length=len(prefix.token_ids),
        row=item.session.row,
        start=len(item.session.token_ids),
        length=length,
    )


def _attend_causally(
    layer: int, q_NQH: torch.Tensor, k_NKH: torch.Tensor, v_NKH: torch.Tensor
) -> torch.Tensor:
    """Attend within one sequence that is computed in a single pass, without the cache."""
    del layer
    q, k, v = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (q_NQH, k_NKH, v_NKH))
    output = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return output[0].transpose(0, 1)
