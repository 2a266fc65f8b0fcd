"""`Engine` on vLLM's AsyncLLM: token ids in and out, log-probs as sampled."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
from vllm import SamplingParams as VllmSampling
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitRequest,
    WeightTransferUpdateRequest,
)
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs.engine import tokens_input
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core_client import EngineCoreClient
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from trainer.attempt.scratch import scratch_path
from trainer.engines.admission import CacheAdmission, CacheClaim
from trainer.engines.base import EngineStats, attended_pairs
from trainer.engines.vllm.builds import arguments_of_build
from trainer.engines.vllm.options import VllmOptions
from trainer.engines.vllm.outputs import drawn_logprobs, drawn_versions, logprob_of
from trainer.engines.vllm.template import begin_imports, forks
from trainer.errors import EngineError
from trainer.types import Sample, SamplingParams
from trainer.weights.chunks import WeightChunk
from trainer.weights.digests import WeightDigests

T = TypeVar("T")
_ADAPTER, _ADAPTER_NUMBER = "policy", 1
_POLL_S = 1.0
"""Seconds between two checks, during a long call, that vLLM's process is alive."""
_SOCKETS = "hillclimb-vllm-"


class VllmEngine:
    """An `Engine` whose model runs in vLLM's own processes.

    The prefix cache is salted by weight version: a conversation that continues after an update is
    computed again under the new weights. At temperature 0 log-probs are those at temperature 1.
    """

    def __init__(self, options: VllmOptions) -> None:
        """Start vLLM and load the model; takes seconds.

        Raises:
            EngineError: vLLM did not start.
        """
        self.arguments = options.engine_arguments() | arguments_of_build(options)
        """Arguments that vLLM was started with."""
        # vLLM does not delete its sockets: they get a scratch folder.
        self._sockets = scratch_path(Path(tempfile.gettempdir()), _SOCKETS)
        self._sockets.mkdir(mode=0o700)
        begin_imports()
        os.environ.update(options.environment() | {"VLLM_RPC_BASE_PATH": str(self._sockets)})
        try:
            with forks():
                self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**self.arguments))
        except (RuntimeError, ValueError, OSError, EOFError) as fault:
            shutil.rmtree(self._sockets, ignore_errors=True)
            raise EngineError(f"vLLM did not start: {fault}") from fault
        cache = self._llm.vllm_config.cache_config
        self._admission = CacheAdmission(
            # Without the block that vLLM keeps for itself.
            (cache.kv_cache_size_tokens or 0) - cache.block_size,
            block=cache.block_size,
            most=options.num_sessions * options.max_length,
        )
        self._max_length = options.max_length
        self._version = options.version
        self._is_ready = False
        self._is_settled = asyncio.Event()
        self._is_settled.set()
        self._is_asleep = False
        self._starting = asyncio.Lock()
        self._numbers = count()
        self._in_flight: dict[str, set[str]] = {}
        self._aborts: set[asyncio.Task[None]] = set()
        self._adapter: LoRARequest | None = None
        self._sessions: set[str] = set()
        self._prefixes: dict[str, asyncio.Task[RequestOutput]] = {}
        self._tokens: Counter[str] = Counter()
        self._busy_s, self._busy_since = 0.0, 0.0

    @property
    def weight_version(self) -> int:
        """Version of the weights that sample now."""
        return self._version

    @property
    def is_dead(self) -> bool:
        """True once vLLM's own processes have exited: only a new engine helps."""
        return bool(self._llm.errored)

    def stats(self) -> EngineStats:
        """Return the counters since start; `busy_s` are seconds with any request in flight."""
        running = time.perf_counter() - self._busy_since if self._in_flight else 0.0
        stats = EngineStats(
            num_sampled_tokens=self._tokens["sampled"],
            num_prefill_tokens=self._tokens["prefill"],
            num_cached_tokens=self._tokens["cached"],
            busy_s=self._busy_s + running,
            num_attended_pairs=self._tokens["pairs"],
        )
        return self._admission.add_to(stats)

    async def admit(self, claim: CacheClaim) -> int:
        """See `AdmitsRollouts.admit`."""
        return await self._admission.admit(claim)

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Continue `prompt_ids`; see `Engine.sample`.

        Raises:
            EngineError: prompt and `max_new_tokens` do not fit the context, or vLLM failed.
        """
        if not prompt_ids or len(prompt_ids) + params.max_new_tokens > self._max_length:
            raise EngineError(
                f"a prompt of {len(prompt_ids)} tokens and {params.max_new_tokens} new ones do not"
                f" fit the context of {self._max_length}"
            )
        is_cached = self.arguments["enable_prefix_caching"]
        if prefix_key and is_cached and session not in self._sessions:
            self._sessions.add(session)
            with self._admission.sampling():
                await self._computed(prompt_ids, prefix_key)
            if session not in self._sessions:
                raise EngineError(f"session {session} was released")
        sampling = VllmSampling(
            temperature=params.temperature,
            top_p=params.top_p,
            max_tokens=params.max_new_tokens,
            stop_token_ids=list(params.stop_token_ids),
            # The caller alone decides which tokens end a turn.
            ignore_eos=True,
            seed=params.seed,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            routed_experts_prompt_start=len(prompt_ids)
            if params.routes_from is None
            else params.routes_from,
        )
        with self._admission.sampling():
            output = await self._run(prompt_ids, sampling, session)
        completion = output.outputs[0]
        if completion.finish_reason == "abort":
            raise EngineError(f"session {session} was released")
        self._count(output, completion)
        return Sample(
            token_ids=tuple(completion.token_ids),
            logprobs=drawn_logprobs(completion),
            stopped=completion.finish_reason == "stop",
            weight_versions=drawn_versions(completion),
            routes=None if params.routes_from is None else completion.routed_experts,
        )

    def release(self, session: str) -> None:
        """Abort the session's requests; vLLM evicts its cache by itself."""
        self._sessions.discard(session)
        self._admission.release(session)
        requests = self._forget(session)
        if requests:
            abort = asyncio.create_task(self._llm.abort(requests))
            self._aborts.add(abort)
            abort.add_done_callback(self._aborts.discard)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        sampling = VllmSampling(
            temperature=0.0,
            max_tokens=1,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await self._run(token_ids, sampling, session="scoring")
        scored = output.prompt_logprobs
        assert scored is not None
        pairs = zip(token_ids[1:], scored[1:], strict=True)
        return torch.tensor([logprob_of(token, row) for token, row in pairs])

    async def load_weights_file(self, path: Path, version: int) -> WeightDigests:
        """Load every weight from a safetensors file, or an adapter from a directory.

        Requests in flight pause and then continue: their earlier tokens keep version and cache.
        Only later requests are computed by the new weights alone.

        Raises:
            EngineError: vLLM failed.
        """
        if not await asyncio.to_thread(path.is_dir):
            await self.start_update()
            await self._load({"path": str(path)})
            return await self.finish_update(version)
        await self._pause()
        await self._load_adapter(path, version)
        digests = await self._digests(version, "loaded_adapter", str(path), _ADAPTER_NUMBER)
        await self._resume(version)
        return digests

    @property
    def num_processes(self) -> int:
        """Number of processes over which the model is split."""
        return int(self.arguments["tensor_parallel_size"])

    async def init_group(self, address: str, first: int, size: int) -> None:
        """Join the group of `size` at `address`; the model's processes are ranks `first`, ...

        Raises:
            EngineError: the group was not formed, or vLLM has served a request already.
        """
        if self._is_ready:
            raise EngineError(
                "vLLM can join the learner's broadcast group only before its first request"
            )
        await self._make_ready({"address": address, "first": first, "size": size})

    async def start_update(self) -> None:
        """Pause requests in flight, and bring the layers into the form in which they are loaded.

        Raises:
            EngineError: vLLM failed.
        """
        await self._pause()
        await self._call(self._llm.start_weight_update())

    async def load_chunk(self, chunk: WeightChunk, ipc_handle: bytes | None) -> None:
        """Load the tensors of `chunk`; see `LoadsChunks.load_chunk`.

        Raises:
            EngineError: vLLM failed.
        """
        update: dict[str, Any] = {"tensors": [asdict(tensor) for tensor in chunk]}
        if ipc_handle is not None:
            update["ipc_handle"] = base64.b64encode(ipc_handle).decode()
        await self._load(update)

    async def finish_update(self, version: int) -> WeightDigests:
        """Sample from the loaded weights, which are of `version`, and return their digests.

        Raises:
            EngineError: vLLM failed.
        """
        await self._call(self._llm.finish_weight_update(str(version)))
        digests = await self._digests(version, "loaded_weights")
        await self._resume(version)
        return digests

    async def _pause(self) -> None:
        """Pause the requests in flight, and hold back new ones (`_settled`)."""
        await self._make_ready()
        self._is_settled.clear()
        await self._call(self._llm.pause_generation(mode="keep", clear_cache=False))

    async def _digests(self, version: int, method: str, *args: object) -> WeightDigests:
        """Collect the digests of all of the model's processes; join different ones by "or".

        A joined digest equals none of the learner's, so the comparison names the tensor.
        """
        parts: list[dict[str, str]]
        parts = await self._call(self._llm.collective_rpc(method, args=args))
        names = {name: None for part in parts for name in part}
        digests = {name: {part.get(name, "nothing") for part in parts} for name in names}
        return WeightDigests(
            version, {name: " or ".join(sorted(each)) for name, each in digests.items()}
        )

    async def _load(self, update: dict[str, Any]) -> None:
        await self._call(self._llm.update_weights(WeightTransferUpdateRequest(update_info=update)))

    async def _resume(self, version: int) -> None:
        self._version = version
        # Prefixes were computed under the old version's salt.
        self._prefixes.clear()
        # Asleep, there is no cache to compute into: `wake_cache` resumes.
        if not self._is_asleep:
            await self._call(self._llm.resume_generation())
            self._is_settled.set()

    async def sleep(self, level: int) -> None:
        """See `Sleeps.sleep`."""
        await self._make_ready()
        self._is_settled.clear()
        await self._call(self._llm.sleep(level, mode="wait"))
        self._is_asleep = True
        self._prefixes.clear()

    async def wake_weights(self) -> None:
        """See `Sleeps.wake_weights`."""
        await self._call(self._llm.wake_up(["weights"]))

    async def wake_cache(self) -> None:
        """See `Sleeps.wake_cache`."""
        if not await self._call(self._llm.wake_up(["kv_cache"])):
            raise EngineError("vLLM's weights were not woken before its cache")
        self._is_asleep = False
        await self._call(self._llm.resume_generation())
        self._is_settled.set()

    async def _settled(self) -> None:
        """Wait until a change of weights is over; new requests are computed by the new weights.

        The version must be final before a request takes it as its cache salt: with the old salt
        it would find keys and values of the old weights.

        Raises:
            EngineError: vLLM's process died during the change.
        """
        while not self._is_settled.is_set():
            if self.is_dead:
                raise EngineError("vLLM's process died")
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._is_settled.wait()

    async def _call(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call to vLLM's process, which would never return once the process has died."""
        task = asyncio.create_task(call)
        try:
            while not task.done() and not self.is_dead:
                await asyncio.wait({task}, timeout=_POLL_S)
            if task.done():
                return task.result()
        except Exception as fault:
            # vLLM reports failures of its process as a plain Exception.
            raise EngineError(f"vLLM did not change its weights: {fault}") from fault
        finally:
            task.cancel()
        raise EngineError("vLLM's process died")

    async def _load_adapter(self, directory: Path, version: int) -> None:
        """Replace the adapter in place; requests name the adapter, not its files."""
        adapter = LoRARequest(_ADAPTER, _ADAPTER_NUMBER, str(directory), load_inplace=True)
        await self._call(self._llm.add_lora(adapter))
        await self._call(self._llm.update_weight_version(str(version)))
        self._adapter = LoRARequest(_ADAPTER, _ADAPTER_NUMBER, str(directory))

    async def close(self) -> None:
        """Stop vLLM's processes."""
        for abort in self._aborts:
            abort.cancel()
        core = self._llm.engine_core
        try:
            await asyncio.to_thread(self._llm.shutdown)
        finally:
            _destroy_context(core)
            shutil.rmtree(self._sockets, ignore_errors=True)
            # Delete it now: its finalizer uses modules that the interpreter unloads at exit.
            del self._llm

    async def _computed(self, prompt_ids: Sequence[int], prefix_key: str) -> None:
        """Wait until a group's shared prompt is cached; the group's first session computes it.

        vLLM shares blocks only once they are computed. The rollouts of a group arrive at once, so
        each would compute the whole prompt.
        """
        if prefix_key not in self._prefixes:
            once = VllmSampling(
                temperature=0.0,
                max_tokens=1,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            computing = self._run(prompt_ids, once, session=f"prefix {prefix_key}")
            self._prefixes[prefix_key] = asyncio.create_task(computing)
            output = await asyncio.shield(self._prefixes[prefix_key])
            cached = output.num_cached_tokens or 0
            self._tokens["prefill"] += len(prompt_ids) - cached
            self._tokens["pairs"] += attended_pairs(cached, len(prompt_ids))
            return
        # Shielded: cancelling one rollout must not cancel the prefill that its siblings await.
        await asyncio.shield(self._prefixes[prefix_key])

    async def _make_ready(self, group: dict[str, Any] | None = None) -> None:
        # vLLM's weight transfer is initialised once, lazily: `init_group` has to come before it
        # for a broadcast, and every other call may be the first.
        async with self._starting:
            if not self._is_ready:
                request = WeightTransferInitRequest(init_info=group or {})
                await self._call(self._llm.init_weight_transfer_engine(request))
                await self._call(self._llm.update_weight_version(str(self._version)))
                self._is_ready = True

    async def _run(
        self, token_ids: Sequence[int], sampling: VllmSampling, session: str
    ) -> RequestOutput:
        await self._make_ready()
        name = f"{session}#{next(self._numbers)}"
        if not self._in_flight:
            self._busy_since = time.perf_counter()
        self._in_flight.setdefault(session, set()).add(name)
        try:
            await self._settled()
            # `release` may have removed the request during the wait.
            if name not in self._in_flight.get(session, ()):
                raise EngineError(f"session {session} was released")
            prompt = tokens_input(list(token_ids), cache_salt=str(self._version))
            async for output in self._llm.generate(
                prompt, sampling, name, lora_request=self._adapter
            ):
                last = output
        except (EngineDeadError, EngineGenerateError) as fault:
            raise EngineError(f"vLLM failed: {fault}") from fault
        finally:
            self._leave(session, name)
        return last

    def _leave(self, session: str, name: str) -> None:
        names = self._in_flight.get(session, set())
        if name not in names:
            # `release` has removed the request already, and counted its seconds.
            return
        if len(names) == 1:
            self._forget(session)
        names.discard(name)

    def _forget(self, session: str) -> set[str]:
        """Remove and return a session's requests; without any in flight the busy seconds end."""
        names = self._in_flight.pop(session, set())
        if names and not self._in_flight:
            self._busy_s += time.perf_counter() - self._busy_since
        return names

    def _count(self, output: RequestOutput, completion: CompletionOutput) -> None:
        cached = output.num_cached_tokens or 0
        self._tokens["cached"] += cached
        num_prompt, num_sampled = len(output.prompt_token_ids or ()), len(completion.token_ids)
        self._tokens["prefill"] += num_prompt - cached
        self._tokens["sampled"] += num_sampled
        self._tokens["pairs"] += attended_pairs(cached, num_prompt + num_sampled)


def _destroy_context(core: EngineCoreClient) -> None:
    """Close the sockets that vLLM left open, and the ZeroMQ context that it leaves behind.

    A context that has an open socket waits for it, without end and in the thread in which the
    garbage collector finds it. vLLM closes none where it fails to stop its processes.
    """
    shadow = getattr(core, "ctx", None)  # asyncio's, of the context proper
    if shadow is not None:
        for socket in list(shadow._sockets):  # noqa: SLF001 - no public way
            socket.close(linger=0)
        shadow._shadow_obj.destroy(linger=0)  # noqa: SLF001 - no public way
