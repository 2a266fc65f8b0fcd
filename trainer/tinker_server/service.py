"""What the server does for its clients: sessions, models, what is kept, sampling."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainer.tinker_server import disk as kept
from trainer.tinker_server import wire
from trainer.tinker_server.adapter import Adapter, lora_spec
from trainer.tinker_server.base import BaseModel
from trainer.tinker_server.disk import Checkpoint, Disk, ModelRecord, SamplerRecord
from trainer.tinker_server.errors import Busy, Refused, Unknown
from trainer.tinker_server.jobs import Jobs, Result
from trainer.tinker_server.samplers import Samplers
from trainer.tinker_server.settings import ServerSettings

KEEP_EPHEMERAL = 4
"""Weights of one model that sampling sessions without a name draw from; older ones are deleted."""
EPHEMERAL_TTL_S = 24 * 3600
"""How long they are there at most, for a client that began to sample before the server ended."""
_EPHEMERAL = "session-"


@dataclass(slots=True)
class _Session:
    heard_at: float
    adapters: dict[str, Adapter]


class Desk:
    """Everything of a server but HTTP. Methods that return a job's id are to be asked for it."""

    def __init__(
        self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Load the model.

        Raises:
            ModelUnavailable, SpecError: it cannot be loaded.
            StateInUse: another server has the directory.
        """
        self.settings = settings
        self.base = BaseModel.load(settings.model_name, settings.model_dir)
        self.context = min(settings.max_context or self.base.context, self.base.context)
        self.disk = Disk(settings.state_dir)
        self.jobs = Jobs()
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._samplers = Samplers(
            self.base, num_sessions=settings.max_samples, max_length=self.context
        )

    def create_session(self) -> str:
        """Begin a session; it lasts as long as it is heard from."""
        session_id = f"s-{secrets.token_hex(8)}"
        self._sessions[session_id] = _Session(self._clock(), {})
        self.disk.sweep()
        return session_id

    def hear(self, session_id: str) -> None:
        """Note that a session's client is there.

        Raises:
            Unknown: the session is over.
        """
        self._session(session_id).heard_at = self._clock()

    def create_model(self, asked: wire.CreateModel) -> str:
        """Make an adapter; its session holds it."""
        session = self._session(asked.session_id)
        if asked.lora_config is None:
            raise Refused("this server trains adapters only: give a lora_config")
        lora = asked.lora_config
        spec = lora_spec(lora, max_rank=self.settings.max_rank)
        self._check_base(asked.base_model)
        model_id = f"{asked.session_id}:train:{asked.model_seq_id}"

        async def make() -> Result:
            self._end_silent_sessions()
            if self._num_adapters() >= self.settings.max_models:
                raise Busy(
                    f"maximum number of LoRA adapters ({self.settings.max_models}) reached: one is"
                    " free again when its client ends, or was silent for"
                    f" {self.settings.session_timeout_s:g} s"
                )
            seed = lora.seed if lora.seed is not None else secrets.randbits(31)
            session.adapters[model_id] = await asyncio.to_thread(
                Adapter, self.base, spec, seed=seed
            )
            record = ModelRecord(
                model_id=model_id,
                base_model=asked.base_model,
                lora=lora,
                created_at=datetime.now(UTC),
            )
            self.disk.add_model(record)
            return {"model_id": model_id, "type": "create_model"}

        return self.jobs.queue(("create", model_id), make)

    def unload_model(self, asked: wire.OfModel) -> str:
        """Give a model's place back; what is kept of it stays."""
        self._adapter(asked.model_id)

        async def unload() -> Result:
            for session in self._sessions.values():
                session.adapters.pop(asked.model_id, None)
            return {"model_id": asked.model_id, "type": "unload_model"}

        return self.jobs.queue(("unload", asked.model_id), unload)

    def forward(
        self, model_id: str, seq_id: int | None, asked: wire.LossInput, *, backward: bool
    ) -> str:
        """Score data; with `backward` add the gradient of their loss."""
        adapter = self._adapter(model_id)

        async def compute() -> Result:
            scores, loss = await asyncio.to_thread(adapter.forward, asked, backward=backward)
            outputs = [
                {"logprobs": {"data": each, "dtype": "float32", "shape": [len(each)]}}
                for each in scores
            ]
            return {
                "loss_fn_output_type": "ArrayRecord",
                "loss_fn_outputs": outputs,
                "metrics": {"loss:sum": loss},
            }

        return self.jobs.queue(_key(model_id, seq_id), compute)

    def optim_step(self, asked: wire.OptimStep) -> str:
        """Take a step."""
        adapter = self._adapter(asked.model_id)

        async def step() -> Result:
            norm = await asyncio.to_thread(adapter.step, asked.adam_params)
            return {"metrics": {"grad_norm": norm}}

        return self.jobs.queue(_key(asked.model_id, asked.seq_id), step)

    def save_weights(self, asked: wire.SaveWeights) -> str:
        """Keep weights and optimizer, and the adapter beside them."""
        adapter = self._adapter(asked.model_id)

        def write(directory: Path) -> None:
            adapter.write_adapter(directory)
            adapter.write_state(directory / kept.STATE)

        async def save() -> Result:
            checkpoint = await asyncio.to_thread(
                self.disk.keep,
                asked.model_id,
                kept.WEIGHTS,
                asked.path,
                write,
                ttl_s=asked.ttl_seconds,
                overwrite=asked.overwrite,
            )
            return {"path": checkpoint.path, "type": "save_weights"}

        return self.jobs.queue(_key(asked.model_id, asked.seq_id), save)

    def load_weights(self, asked: wire.LoadWeights) -> str:
        """Let a model go on from what was kept of one like it."""
        adapter = self._adapter(asked.model_id)

        async def load() -> Result:
            checkpoint = self.disk.find(asked.path)
            if checkpoint.kind != kept.WEIGHTS:
                raise Refused(f"{asked.path} is for sampling only: nothing can go on from it")
            path = checkpoint.directory / kept.STATE
            await asyncio.to_thread(adapter.read_state, path, optimizer=asked.optimizer)
            return {"path": asked.path, "type": "load_weights"}

        return self.jobs.queue(_key(asked.model_id, asked.seq_id), load)

    def save_for_sampler(self, asked: wire.SaveForSampler) -> str:
        """Keep the adapter under a name, or for a sampling session that begins with it."""
        adapter = self._adapter(asked.model_id)
        session_id = asked.model_id.partition(":")[0]
        if (asked.path is None) == (asked.sampling_session_seq_id is None):
            raise Refused("give either a path or a sampling_session_seq_id")

        async def save() -> Result:
            number = asked.sampling_session_seq_id
            checkpoint = await asyncio.to_thread(
                self.disk.keep,
                asked.model_id,
                kept.SAMPLER_WEIGHTS,
                asked.path or f"{_EPHEMERAL}{number}",
                adapter.write_adapter,
                ttl_s=asked.ttl_seconds if asked.path is not None else EPHEMERAL_TTL_S,
                overwrite=asked.path is None,
            )
            if asked.path is not None:
                return {"path": checkpoint.path, "type": "save_weights_for_sampler"}
            sampler_id = self._add_sampler(session_id, number, checkpoint.path)
            self._drop_ephemeral(asked.model_id)
            return {"sampling_session_id": sampler_id, "type": "save_weights_for_sampler"}

        return self.jobs.queue(_key(asked.model_id, asked.seq_id), save)

    def create_sampler(self, asked: wire.CreateSampler) -> str:
        """Begin to sample; return the sampling session's id."""
        self._session(asked.session_id)
        if asked.model_path is not None:
            self.disk.find(asked.model_path)
        elif asked.base_model is None:
            raise Refused("give a base_model or a model_path")
        else:
            self._check_base(asked.base_model)
        return self._add_sampler(asked.session_id, asked.sampling_session_seq_id, asked.model_path)

    def sample(self, asked: wire.AskSample) -> str:
        """Draw."""
        record = self.disk.sampler(asked.sampling_session_id)
        path = record.model_path
        adapter = self.disk.find(path).directory if path is not None else None
        name = f"{asked.sampling_session_id}/{asked.seq_id}"

        async def draw() -> Result:
            return await self._samplers.answer(name, asked, adapter)

        return self.jobs.start(("sample", asked.sampling_session_id, asked.seq_id), draw)

    async def close(self) -> None:
        """End all work."""
        await self.jobs.close()
        await self._samplers.close()
        self.disk.close()

    def _add_sampler(self, session_id: str, number: int | None, path: str | None) -> str:
        sampler_id = f"{session_id}:sample:{number}"
        self.disk.add_sampler(
            SamplerRecord(sampler_id=sampler_id, base_model=self.base.name, model_path=path)
        )
        return sampler_id

    def _drop_ephemeral(self, model_id: str) -> None:
        ephemeral: list[Checkpoint] = [
            each for each in self.disk.checkpoints(model_id) if each.name.startswith(_EPHEMERAL)
        ]
        for each in ephemeral[:-KEEP_EPHEMERAL]:
            self.disk.drop(each)

    def _check_base(self, name: str) -> None:
        if name != self.base.name:
            raise Refused(f"this server has no model {name!r}, but {self.base.name!r}")

    def _session(self, session_id: str) -> _Session:
        self._end_silent_sessions()
        session = self._sessions.get(session_id)
        if session is None:
            raise Unknown(
                f"there is no session {session_id}: it was silent for too long, or the server was"
                " started again"
            )
        return session

    def _adapter(self, model_id: str) -> Adapter:
        self._end_silent_sessions()
        for session in self._sessions.values():
            if model_id in session.adapters:
                return session.adapters[model_id]
        raise Unknown(
            f"model {model_id} is not in training here: its session is over, or the server was"
            " started again; make a new one and load what was saved of it"
        )

    def _num_adapters(self) -> int:
        return sum(len(session.adapters) for session in self._sessions.values())

    def _end_silent_sessions(self) -> None:
        latest = self._clock() - self.settings.session_timeout_s
        silent = [name for name, each in self._sessions.items() if each.heard_at < latest]
        for name in silent:
            del self._sessions[name]


def _key(model_id: str, seq_id: int | None) -> Hashable:
    """The same for a request that is repeated; one without a number is never the same."""
    return (model_id, seq_id if seq_id is not None else secrets.token_hex(8))
