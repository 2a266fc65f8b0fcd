"""`Engine` on vLLM's AsyncLLM: token ids in and out, log-probs as sampled."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import Qwen3Config
from vllm import SamplingParams as VllmSampling
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitRequest,
    WeightTransferUpdateRequest,
)
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs.engine import tokens_input
from vllm.logprobs import Logprob
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from trainer.engines.base import EngineStats
from trainer.engines.vllm.options import VllmOptions
from trainer.engines.vllm.template import begin_imports, forks
from trainer.errors import EngineError
from trainer.leftovers import own_path
from trainer.types import Sample, SamplingParams
from trainer.weights.manifest import Manifest
from trainer.weights.pieces import Piece

T = TypeVar("T")
_ADAPTER, _ADAPTER_NUMBER = "policy", 1
_LOOK_S = 1.0
"""How often a call that takes long looks whether vLLM is still there."""
_SOCKETS = "hillclimb-vllm-"


def why_not(config: Qwen3Config) -> str | None:
    """Say why this build of vLLM cannot run the model; None when nothing speaks against it.

    A CPU build starts with any head size, and then dies of the first request.
    """
    if not current_platform.is_cpu():
        return None
    if torch.cuda.is_available():
        return (
            "this is vLLM's CPU build, on a machine with GPUs: install the packages of"
            " requirements/trainer-gpu.txt, which have its CUDA build"
        )
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if config.head_dim in sizes:
        return None
    return f"vLLM on a CPU has no attention for heads of {config.head_dim} (it has {sizes})"


def _for_this_machine() -> dict[str, Any]:
    """Arguments that depend on the build of vLLM; one for GPUs keeps its own defaults."""
    if not current_platform.is_cpu():
        return {}
    return {
        # The cache shares whole blocks: with the 128 tokens of a CPU build most of what a turn has
        # to compute is what the turn before had computed already.
        "block_size": 32,
        "enforce_eager": True,
        # A seeded request whose prompt is cut over two steps crashes vLLM 0.32 on a CPU (its
        # generators have no offset to rewind), so prompts are computed whole.
        "enable_chunked_prefill": False,
    }


class VllmEngine:
    """An `Engine` whose model runs in processes of vLLM's own.

    The prefix cache is salted by weight version: a conversation that goes on after an update is
    computed anew under the new weights. At temperature 0 log-probs are those at temperature 1.
    """

    def __init__(self, options: VllmOptions) -> None:
        """Start vLLM and load the model; takes seconds.

        Raises:
            EngineError: vLLM did not start.
        """
        self.arguments = options.engine_arguments() | _for_this_machine()
        """What vLLM was started with."""
        # Its sockets, which it leaves behind.
        self._sockets = own_path(Path(tempfile.gettempdir()), _SOCKETS)
        self._sockets.mkdir(mode=0o700)
        begin_imports()
        os.environ.update(options.environment() | {"VLLM_RPC_BASE_PATH": str(self._sockets)})
        try:
            with forks():
                self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**self.arguments))
        except (RuntimeError, ValueError, OSError, EOFError) as fault:
            shutil.rmtree(self._sockets, ignore_errors=True)
            raise EngineError(f"vLLM did not start: {fault}") from fault
        self._max_length = options.max_length
        self._version = options.version
        self._is_ready = False
        self._is_settled = asyncio.Event()
        self._is_settled.set()
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
        """The version of the weights that draw now."""
        return self._version

    @property
    def is_dead(self) -> bool:
        """Whether vLLM's own processes are gone: nothing but a new engine helps."""
        return bool(self._llm.errored)

    def stats(self) -> EngineStats:
        """Counters since start; `busy_s` counts the seconds in which any request was in flight."""
        running = time.perf_counter() - self._busy_since if self._in_flight else 0.0
        return EngineStats(
            num_sampled_tokens=self._tokens["sampled"],
            num_prefill_tokens=self._tokens["prefill"],
            num_cached_tokens=self._tokens["cached"],
            busy_s=self._busy_s + running,
        )

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
        if prefix_key and session not in self._sessions:
            self._sessions.add(session)
            await self._computed(prompt_ids, prefix_key)
            if session not in self._sessions:
                raise EngineError(f"session {session} was released")
        sampling = VllmSampling(
            temperature=params.temperature,
            top_p=params.top_p,
            max_tokens=params.max_new_tokens,
            stop_token_ids=list(params.stop_token_ids),
            # What ends a turn is the caller's to say.
            ignore_eos=True,
            seed=params.seed,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await self._run(prompt_ids, sampling, session)
        found = output.outputs[0]
        if found.finish_reason == "abort":
            raise EngineError(f"session {session} was released")
        self._count(output, found)
        return Sample(
            token_ids=tuple(found.token_ids),
            logprobs=_logprobs(found),
            stopped=found.finish_reason == "stop",
            weight_versions=_versions(found),
        )

    def release(self, session: str) -> None:
        """End what is in flight of a session; the cache forgets it by itself."""
        self._sessions.discard(session)
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
        return torch.tensor([_logprob(token, row) for token, row in pairs])

    async def take_file(self, path: Path, version: int) -> Manifest:
        """Take every weight from a safetensors file, or an adapter from a directory.

        Requests in flight wait and then go on. Tokens drawn before keep their version, and their
        cache: only what is asked for later is computed by the new weights alone.

        Raises:
            EngineError: vLLM failed.
        """
        if not await asyncio.to_thread(path.is_dir):
            await self.begin_update()
            await self._take({"path": str(path)})
            return await self.finish_update(version)
        await self._pause()
        await self._take_adapter(path, version)
        held = await self._held(version, "taken_adapter", str(path), _ADAPTER_NUMBER)
        await self._go_on(version)
        return held

    @property
    def num_processes(self) -> int:
        """How many processes hold the model together."""
        return int(self.arguments["tensor_parallel_size"])

    async def meet(self, address: str, first: int, size: int) -> None:
        """Let the processes of the model be numbers `first` and on of `size` at `address`.

        Raises:
            EngineError: they did not meet, or vLLM was asked for something before.
        """
        if self._is_ready:
            raise EngineError("vLLM's processes can meet the learner's only at their start")
        await self._make_ready({"address": address, "first": first, "size": size})

    async def begin_update(self) -> None:
        """Let requests in flight wait, and bring the layers into the form that is loaded.

        Raises:
            EngineError: vLLM failed.
        """
        await self._pause()
        await self._told(self._llm.start_weight_update())

    async def take_piece(self, piece: Piece, lent: bytes | None) -> None:
        """Take the tensors of `piece`; see `TakesPieces.take_piece`.

        Raises:
            EngineError: vLLM failed.
        """
        update: dict[str, Any] = {"tensors": [asdict(tensor) for tensor in piece]}
        if lent is not None:
            update["lent"] = base64.b64encode(lent).decode()
        await self._take(update)

    async def finish_update(self, version: int) -> Manifest:
        """Draw from the weights that were taken, which are of `version`, and say what they are.

        Raises:
            EngineError: vLLM failed.
        """
        await self._told(self._llm.finish_weight_update(str(version)))
        held = await self._held(version, "taken_weights")
        await self._go_on(version)
        return held

    async def _pause(self) -> None:
        """Let what is in flight wait, and what is asked for meanwhile too (`_settled`)."""
        await self._make_ready()
        self._is_settled.clear()
        await self._told(self._llm.pause_generation(mode="keep", clear_cache=False))

    async def _held(self, version: int, question: str, *args: object) -> Manifest:
        """Ask every process that holds the model; where they differ, no mark is right."""
        answers: list[dict[str, str]]
        answers = await self._told(self._llm.collective_rpc(question, args=args))
        names = {name: None for answer in answers for name in answer}
        found = {name: {answer.get(name, "nothing") for answer in answers} for name in names}
        return Manifest(version, {name: " or ".join(sorted(each)) for name, each in found.items()})

    async def _take(self, update: dict[str, Any]) -> None:
        await self._told(self._llm.update_weights(WeightTransferUpdateRequest(update_info=update)))

    async def _go_on(self, version: int) -> None:
        self._version = version
        self._prefixes.clear()
        await self._told(self._llm.resume_generation())
        self._is_settled.set()

    async def _settled(self) -> None:
        """Wait while weights change: what is asked for meanwhile is computed by the new ones.

        Its salt has to be theirs, or it would find the old ones' cache.

        Raises:
            EngineError: vLLM's process died of the change.
        """
        while not self._is_settled.is_set():
            if self.is_dead:
                raise EngineError("vLLM's process died")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._is_settled.wait()

    async def _told(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that vLLM's process answers, which it does not when it dies meanwhile."""
        task = asyncio.create_task(call)
        try:
            while not task.done() and not self.is_dead:
                await asyncio.wait({task}, timeout=_LOOK_S)
            if task.done():
                return task.result()
        except Exception as fault:
            # What fails in vLLM's process comes out as a plain Exception.
            raise EngineError(f"vLLM did not take the weights: {fault}") from fault
        finally:
            task.cancel()
        raise EngineError("vLLM's process died")

    async def _take_adapter(self, directory: Path, version: int) -> None:
        """Replace the adapter, if there was one; requests name it and not its files."""
        adapter = LoRARequest(_ADAPTER, _ADAPTER_NUMBER, str(directory), load_inplace=True)
        await self._told(self._llm.add_lora(adapter))
        await self._told(self._llm.update_weight_version(str(version)))
        self._adapter = LoRARequest(_ADAPTER, _ADAPTER_NUMBER, str(directory))

    async def close(self) -> None:
        """Stop vLLM's processes."""
        for abort in self._aborts:
            abort.cancel()
        # vLLM closes its sockets and leaves their context, which it sees through an asyncio one, to
        # the garbage collector.
        sockets = getattr(getattr(self._llm.engine_core, "ctx", None), "_shadow_obj", None)
        await asyncio.to_thread(self._llm.shutdown)
        if sockets is not None:
            sockets.destroy(linger=0)
        shutil.rmtree(self._sockets, ignore_errors=True)
        # Its finalizer wants modules that are gone when the process ends.
        del self._llm

    async def _computed(self, prompt_ids: Sequence[int], prefix_key: str) -> None:
        """Wait until the prompt that a group shares is in the cache; the first to ask computes it.

        vLLM shares what it has computed, not what it is about to: the rollouts of a group come all
        at once, and each would compute the whole prompt.
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
            self._tokens["prefill"] += len(prompt_ids) - (output.num_cached_tokens or 0)
            return
        # One that is cancelled leaves the others what it had begun.
        await asyncio.shield(self._prefixes[prefix_key])

    async def _make_ready(self, meeting: dict[str, Any] | None = None) -> None:
        async with self._starting:
            if not self._is_ready:
                request = WeightTransferInitRequest(init_info=meeting or {})
                await self._told(self._llm.init_weight_transfer_engine(request))
                await self._told(self._llm.update_weight_version(str(self._version)))
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
            # `release` has counted it.
            return
        if len(names) == 1:
            self._forget(session)
        names.discard(name)

    def _forget(self, session: str) -> set[str]:
        """Take a session out of what is in flight; with the last one the busy seconds end."""
        names = self._in_flight.pop(session, set())
        if names and not self._in_flight:
            self._busy_s += time.perf_counter() - self._busy_since
        return names

    def _count(self, output: RequestOutput, found: CompletionOutput) -> None:
        cached = output.num_cached_tokens or 0
        self._tokens["cached"] += cached
        self._tokens["prefill"] += len(output.prompt_token_ids or ()) - cached
        self._tokens["sampled"] += len(found.token_ids)


def _logprobs(found: CompletionOutput) -> tuple[float, ...]:
    assert found.logprobs is not None
    pairs = zip(found.token_ids, found.logprobs, strict=True)
    return tuple(_logprob(token, row) for token, row in pairs)


def _logprob(token: int, row: Mapping[int, Logprob] | None) -> float:
    # One that were left out would move all that follow to other tokens.
    assert row is not None, "a token without a log-probability"
    return row[token].logprob


def _versions(found: CompletionOutput) -> tuple[int, ...]:
    spans = found.weight_versions or []
    versions = [int(span.version) for span in spans for _ in range(span.start, span.end)]
    assert len(versions) == len(found.token_ids), "a token without a weight version"
    return tuple(versions)
