"""The server's operations: sessions, models, checkpoints, sampling."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainer.tinker_server import disk, wire
from trainer.tinker_server.accounts import new_session_id
from trainer.tinker_server.disk import Disk, ModelRecord, SamplerRecord
from trainer.tinker_server.errors import Busy, RequestRefused, Unknown
from trainer.tinker_server.jobs import FutureTable, Result, Work
from trainer.tinker_server.model.adapter import Adapter, layers_of
from trainer.tinker_server.model.base import BaseModel
from trainer.tinker_server.model.samplers import SamplerPool
from trainer.tinker_server.settings import TinkerServerSettings
from trainer.tinker_server.unnamed import UnnamedWeights

PLACE_POLL_S = 1.0
"""Pause between two looks for a free place (seconds)."""
PLACE_WAIT_S = 300.0
"""Longest wait for a place (seconds); the SDK's call goes on waiting meanwhile."""
UNHEARD_POLLS = 30
"""Looks after which a client without a heartbeat gives its place to one that waits; the SDK sends
one every 10 s."""


@dataclass(slots=True)
class _Session:
    heartbeat_at: float
    user_metadata: dict[str, str] | None
    adapters: dict[str, Adapter]


class TinkerService:
    """Operations of the server without HTTP; long ones return the id of a job in `jobs`."""

    def __init__(
        self, settings: TinkerServerSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Load the model.

        Raises:
            ModelUnavailable, SpecError: it cannot be loaded.
            StateInUse: another server has the directory.
        """
        self.settings = settings
        self.base = BaseModel.load(settings.model_name, settings.model_dir)
        self.tokenizer_id = settings.tokenizer_id or str(settings.model_dir.resolve())
        self.context = min(settings.max_context or self.base.context, self.base.context)
        self.disk = Disk(settings.state_dir)
        self.jobs = FutureTable()
        self._making = asyncio.Lock()
        self._unnamed = UnnamedWeights(self.disk, max_bytes=settings.max_unnamed_bytes)
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._samplers = SamplerPool(
            self.base, num_sessions=settings.max_samples, max_length=self.context
        )

    def create_session(self, body: wire.CreateSession, *, account: str = "") -> str:
        """Create a session of an account; it lasts while its heartbeats come."""
        session_id = new_session_id(account)
        self._sessions[session_id] = _Session(self._clock(), body.user_metadata, {})
        self.disk.sweep()
        return session_id

    def heartbeat(self, session_id: str) -> None:
        """Record a heartbeat of a session.

        Raises:
            Unknown: the session is over.
        """
        self._session(session_id).heartbeat_at = self._clock()

    def check_session(self, session_id: str) -> None:
        """Do nothing while a session lasts.

        Raises:
            Unknown: it is over.
        """
        self._session(session_id)

    def session_ids(self) -> list[str]:
        """Return the sessions that last, the oldest first."""
        self._end_silent_sessions()
        return list(self._sessions)

    def create_model(self, body: wire.CreateModel) -> str:
        """Create an adapter, which belongs to its session."""
        session = self._session(body.session_id)
        if body.lora_config is None:
            raise RequestRefused("this server trains adapters only: give a lora_config")
        lora = body.lora_config
        layers = layers_of(lora, max_rank=self.settings.max_rank)
        self._check_base(body.base_model)
        model_id = f"{body.session_id}:train:{body.model_seq_id}"
        key = ("create", model_id)

        async def add_adapter() -> None:
            seed = lora.seed if lora.seed is not None else secrets.randbits(31)
            async for has_place in self._waiting_for_place(session):
                # One at a time: drawing the factors seeds torch's one generator.
                async with self._making:
                    if has_place():
                        session.adapters[model_id] = await asyncio.to_thread(
                            Adapter, self.base, layers, seed=seed
                        )
                        return
                self.jobs.paused[key] = self._full()

        async def make() -> Result:
            try:
                await add_adapter()
            finally:
                self.jobs.paused.pop(key, None)
            record = ModelRecord(
                model_id=model_id,
                base_model=body.base_model,
                lora=lora,
                created_at=datetime.now(UTC),
                user_metadata=body.user_metadata or session.user_metadata,
            )
            self.disk.add_model(record)
            return {"model_id": model_id, "type": "create_model"}

        # Beside the queue: whoever waits for a place keeps nobody else waiting.
        return self.jobs.start(key, make, owner=body.session_id)

    def unload_model(self, body: wire.OfModel) -> str:
        """Remove a model from memory; its checkpoints stay."""
        self._adapter(body.model_id)

        async def unload() -> Result:
            for session in self._sessions.values():
                session.adapters.pop(body.model_id, None)
            return {"model_id": body.model_id, "type": "unload_model"}

        return self.jobs.queue(("unload", body.model_id), unload, owner=_owner(body.model_id))

    def forward(
        self, model_id: str, seq_id: int | None, body: wire.LossInput, *, backward: bool
    ) -> str:
        """Compute log-probs of data; with `backward` add the gradient of their loss."""
        adapter = self._adapter(model_id)

        async def compute() -> Result:
            scores, loss = await asyncio.to_thread(adapter.forward, body, backward=backward)
            outputs = [
                {"logprobs": {"data": each, "dtype": "float32", "shape": [len(each)]}}
                for each in scores
            ]
            return {
                "loss_fn_output_type": "ArrayRecord",
                "loss_fn_outputs": outputs,
                "metrics": {"loss:sum": loss},
            }

        return self._queue(model_id, seq_id, compute)

    def optim_step(self, body: wire.OptimStep) -> str:
        """Take an optimizer step."""
        adapter = self._adapter(body.model_id)

        async def step() -> Result:
            norm = await asyncio.to_thread(adapter.step, body.adam_params)
            return {"metrics": {"grad_norm": norm}}

        return self._queue(body.model_id, body.seq_id, step)

    def save_weights(self, body: wire.SaveWeights) -> str:
        """Save weights and optimizer, and the adapter beside them."""
        adapter = self._adapter(body.model_id)

        def write(directory: Path) -> None:
            adapter.write_adapter(directory)
            adapter.write_state(directory / disk.STATE)

        async def save() -> Result:
            checkpoint = await asyncio.to_thread(
                self.disk.save,
                body.model_id,
                disk.WEIGHTS,
                body.path,
                write,
                ttl_s=body.ttl_seconds,
                overwrite=body.overwrite,
            )
            return {"path": checkpoint.path, "type": "save_weights"}

        return self._queue(body.model_id, body.seq_id, save)

    def load_weights(self, body: wire.LoadWeights) -> str:
        """Load a checkpoint of a model of the same shape."""
        adapter = self._adapter(body.model_id)

        async def load() -> Result:
            checkpoint = self.disk.find(body.path)
            if checkpoint.kind != disk.WEIGHTS:
                raise RequestRefused(f"{body.path} is for sampling only: nothing can go on from it")
            path = checkpoint.directory / disk.STATE
            await asyncio.to_thread(adapter.read_state, path, optimizer=body.optimizer)
            return {"path": body.path, "type": "load_weights"}

        return self._queue(body.model_id, body.seq_id, load)

    def save_for_sampler(self, body: wire.SaveForSampler) -> str:
        """Save the adapter under a name, or for a new sampling session."""
        adapter = self._adapter(body.model_id)
        session_id = _owner(body.model_id)
        if (body.path is None) == (body.sampling_session_seq_id is None):
            raise RequestRefused("give either a path or a sampling_session_seq_id")

        async def save() -> Result:
            answer: Result = {"type": "save_weights_for_sampler"}
            number = body.sampling_session_seq_id
            if number is not None:
                saved = await self._unnamed.save(body.model_id, number, adapter.write_adapter)
                sampler_id = self._add_sampler(session_id, number, saved.path)
                return answer | {"sampling_session_id": sampler_id}
            assert body.path is not None
            saved = await asyncio.to_thread(
                self.disk.save,
                body.model_id,
                disk.SAMPLER_WEIGHTS,
                body.path,
                adapter.write_adapter,
                ttl_s=body.ttl_seconds,
            )
            return answer | {"path": saved.path}

        return self._queue(body.model_id, body.seq_id, save)

    def create_sampler(self, body: wire.CreateSampler) -> str:
        """Create a sampling session and return its id."""
        self._session(body.session_id)
        if body.model_path is not None:
            self.disk.find(body.model_path)
        elif body.base_model is None:
            raise RequestRefused("give a base_model or a model_path")
        else:
            self._check_base(body.base_model)
        return self._add_sampler(body.session_id, body.sampling_session_seq_id, body.model_path)

    def sample(self, body: wire.AskSample) -> str:
        """Sample from a sampling session."""
        record = self.disk.sampler(body.sampling_session_id)
        adapter = None
        if record.model_path is not None:
            saved = self.disk.find(record.model_path)
            self._unnamed.use(saved)
            adapter = saved.directory
        name = f"{body.sampling_session_id}/{body.seq_id}"

        async def draw() -> Result:
            return await self._samplers.answer(name, body, adapter)

        key = ("sample", body.sampling_session_id, body.seq_id)
        return self.jobs.start(key, draw, owner=_owner(body.sampling_session_id))

    async def close(self) -> None:
        """Cancel all jobs and close the engines."""
        await self.jobs.close()
        await self._samplers.close()
        self.disk.close()

    def _queue(self, model_id: str, seq_id: int | None, work: Work) -> str:
        return self.jobs.queue(_key(model_id, seq_id), work, owner=_owner(model_id))

    def _add_sampler(self, session_id: str, number: int | None, path: str | None) -> str:
        sampler_id = f"{session_id}:sample:{number}"
        self.disk.add_sampler(
            SamplerRecord(sampler_id=sampler_id, base_model=self.base.name, model_path=path)
        )
        return sampler_id

    def _check_base(self, name: str) -> None:
        if name != self.base.name:
            raise RequestRefused(f"this server has no model {name!r}, but {self.base.name!r}")

    def _session(self, session_id: str) -> _Session:
        self._end_silent_sessions()
        session = self._sessions.get(session_id)
        if session is None:
            raise Unknown(
                f"there is no session {session_id}: its heartbeats stopped, or the server was"
                " restarted"
            )
        return session

    def _adapter(self, model_id: str) -> Adapter:
        self._end_silent_sessions()
        for session in self._sessions.values():
            if model_id in session.adapters:
                return session.adapters[model_id]
        raise Unknown(
            f"model {model_id} is not in memory: its session has ended, or the server was"
            " restarted; create a new one and load its last checkpoint"
        )

    async def _waiting_for_place(self, session: _Session) -> AsyncIterator[Callable[[], bool]]:
        """Yield a check for a free place, at once and then every `PLACE_POLL_S`.

        The SDK does not end a session when its process ends. A client that sends no heartbeat while
        this one waits, for `UNHEARD_POLLS`, therefore loses its places.

        Raises:
            Busy: the places stay taken, or are the session's own.
        """
        limit = self.settings.max_models
        beats = {name: each.heartbeat_at for name, each in self._sessions.items()}
        polls = 0
        while True:
            self._end_silent_sessions()
            yield lambda: self._num_adapters() < limit
            if len(session.adapters) >= limit or polls * PLACE_POLL_S >= PLACE_WAIT_S:
                raise Busy(self._full())
            await asyncio.sleep(PLACE_POLL_S)
            polls += 1
            # Polls and not seconds: no heartbeat is read while a computation blocks the loop.
            if polls >= UNHEARD_POLLS:
                self._end_unheard(beats, but=session)

    def _end_unheard(self, beats: Mapping[str, float], *, but: _Session) -> None:
        """End sessions that have places and whose last heartbeat is still that of `beats`."""
        for name, each in list(self._sessions.items()):
            if each is not but and each.adapters and beats.get(name) == each.heartbeat_at:
                self._end_session(name, "its client was silent while another one waited")

    def _full(self) -> str:
        return (
            f"maximum number of LoRA adapters ({self.settings.max_models}) reached: one is free"
            " again when its client unloads it or ends"
        )

    def _num_adapters(self) -> int:
        return sum(len(session.adapters) for session in self._sessions.values())

    def _end_silent_sessions(self) -> None:
        latest = self._clock() - self.settings.session_timeout_s
        silent = [name for name, each in self._sessions.items() if each.heartbeat_at < latest]
        for name in silent:
            seconds = self.settings.session_timeout_s
            self._end_session(name, f"its client was silent for longer than {seconds:g} s")

    def _end_session(self, name: str, why: str) -> None:
        del self._sessions[name]
        self._unnamed.end(name)
        self.jobs.end(name, f"session {name} has ended: {why}")


def _owner(name: str) -> str:
    """Return the session of a model or of a sampling session."""
    return name.partition(":")[0]


def _key(model_id: str, seq_id: int | None) -> Hashable:
    """Return a request's key, equal for its repetitions; without a number it is unique."""
    return (model_id, seq_id if seq_id is not None else secrets.token_hex(8))
