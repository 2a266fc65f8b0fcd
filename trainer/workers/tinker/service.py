"""One session with a Tinker server: its models, the adapter in training, and the clients."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import tinker
from tinker import types
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType

from hillclimb.spec.backend.tinker import TinkerSpec
from trainer.errors import LearnerError, SpecError, TrainerError
from trainer.workers.tinker.account import TinkerAccount
from trainer.workers.tinker.calls import aside, blocking, is_full
from trainer.workers.tinker.sdk_clients import close_on_own_loop
from trainer.workers.tinker.watch import SessionWatch

TELEMETRY = "TINKER_TELEMETRY"
"""Variable that turns the SDK's reports on its process off (0); an operator's value stays."""
CLOSE_S = 10.0
"""Deadline of unloading a model (seconds)."""
LATE_S = 10.0
"""Silence of a server after which the trainer logs that it waits for it (seconds)."""
HEARTBEAT_S = 10.0
"""Deadline of one heartbeat (seconds)."""
PLACE_POLL_S = 5.0
"""Pause between two requests for a place on a server that is full (seconds)."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Model, rank and limits that a run requires of a server."""

    base_model: str
    tinker: TinkerSpec
    max_sequence_length: int
    seed: int
    name: str
    """`RUN-aATTEMPT`: the server shows it with session, adapter and checkpoints."""

    @property
    def run_id(self) -> str:
        """Id of the run that the attempt belongs to."""
        return self.name.rpartition("-a")[0]


class TinkerService:
    """A session; its heartbeats begin with it and end with `close`."""

    def __init__(self, account: TinkerAccount, request: ModelRequest) -> None:
        """Open a session and check that the server has the model, with enough context.

        Raises:
            SpecError: the server lacks it, or refuses the key.
            LearnerError: it does not answer.
        """
        close_on_own_loop()
        os.environ.setdefault(TELEMETRY, "0")
        # The SDK warns at every checkpoint that an archive may take a while.
        logging.getLogger("tinker.lib.public_interfaces.rest_client").setLevel(logging.ERROR)
        self.request = request
        self.allowed = account.allowed
        self.timeout_s = request.tinker.call_timeout_s
        self._training: tinker.TrainingClient | None = None
        self.watch = SessionWatch(self._send_heartbeat)
        """Watches the session from the moment on at which there is a model to lose."""
        self.client = tinker.ServiceClient(
            user_metadata={"run": request.name}, api_key=account.key, base_url=account.base_url
        )
        self._check_model(self._models(account.base_url))

    def blocking(
        self, what: str, call: Callable[[], T], kind: type[TrainerError] = LearnerError
    ) -> T:
        """Make a blocking call within the deadline.

        Raises:
            SpecError: the server refuses for good.
            TrainerError: of `kind`, for everything else.
        """
        return blocking(what, kind, self.timeout_s, call)

    async def aside(
        self, what: str, call: Callable[[], T], kind: type[TrainerError] = LearnerError
    ) -> T:
        """As `blocking`, without blocking the event loop."""
        return await aside(what, kind, self.timeout_s, call)

    def make_training(self) -> tinker.TrainingClient:
        """Make a new adapter on the server; it ends with the session.

        A server that is full has the deadline of a call for it: a place gets free when another
        client ends, and minutes after one was killed.

        Raises:
            SpecError: the server has no such model or rank.
            LearnerError: the server stays full, or does not answer.
        """
        deadline, is_reported = time.monotonic() + self.timeout_s, False
        while True:
            try:
                self._training = self._create_training()
                break
            except TrainerError as refused:
                if not is_full(refused.__cause__) or time.monotonic() + PLACE_POLL_S > deadline:
                    raise
                if not is_reported:
                    _log.warning("waiting up to %g s for a place: %s", self.timeout_s, refused)
                    is_reported = True
            time.sleep(PLACE_POLL_S)
        self.watch.start()
        return self._training

    def _create_training(self) -> tinker.TrainingClient:
        request = self.request
        return self.blocking(
            f"an adapter of rank {request.tinker.lora_rank} on {request.base_model}",
            lambda: self.client.create_lora_training_client(
                base_model=request.base_model,
                rank=request.tinker.lora_rank,
                seed=request.seed % 2**31,
                train_mlp=request.tinker.train_mlp,
                train_attn=request.tinker.train_attn,
                train_unembed=request.tinker.train_unembed,
                user_metadata={"run": request.name},
            ),
        )

    def close(self) -> None:
        """Unload the adapter and end the session; an unreachable server is no error."""
        training, self._training = self._training, None
        self.watch.stop()
        try:
            if training is not None:
                blocking("the end of the session", LearnerError, CLOSE_S, lambda: _unload(training))
        except TrainerError as error:
            _log.info("the server ends the session by itself: %s", error)
        finally:
            # A session without a training client, as an evaluation has, sends heartbeats too.
            self.client.holder.close()  # type: ignore[no-untyped-call]

    def _send_heartbeat(self) -> None:
        """Send one heartbeat, without the SDK's retries."""
        holder = self.client.holder

        async def send() -> None:
            with holder.aclient(ClientConnectionPoolType.SESSION) as client:
                await client.service.session_heartbeat(
                    session_id=holder.get_session_id(), max_retries=0, timeout=HEARTBEAT_S
                )

        holder.run_coroutine_threadsafe(send()).result(2 * HEARTBEAT_S)

    def _models(self, url: str) -> types.GetServerCapabilitiesResponse:
        """Query the server's models; one that is still starting has the whole deadline."""
        late = threading.Timer(
            LATE_S,
            lambda: _log.warning(
                "no Tinker server has answered at %s yet; it has %g s in all", url, self.timeout_s
            ),
        )
        late.daemon = True
        late.start()
        try:
            return self.blocking(
                f"the request for its models at {url}", self.client.get_server_capabilities
            )
        finally:
            late.cancel()

    def _check_model(self, offered: types.GetServerCapabilitiesResponse) -> None:
        """Refuse a model that the server lacks, or whose context is too short."""
        contexts = {each.model_name: each.max_context_length for each in offered.supported_models}
        if self.request.base_model not in contexts:
            raise SpecError(
                f"the Tinker server has no model {self.request.base_model!r}, but"
                f" {', '.join(sorted(filter(None, contexts))) or 'none'}: set"
                " backend.tinker.base_model to one of these"
            )
        context, length = contexts[self.request.base_model], self.request.max_sequence_length
        if context is not None and length > context:
            raise SpecError(
                f"rollout.max_sequence_length ({length}) is larger than the context of"
                f" {self.request.base_model} on the Tinker server ({context}): lower it"
            )


def _unload(training: tinker.TrainingClient) -> None:
    """Unload the model: the SDK has a request for it and no method."""

    async def unload() -> None:
        with training.holder.aclient(ClientConnectionPoolType.TRAIN) as client:
            request = types.UnloadModelRequest(model_id=training.model_id)
            await client.models.unload(request=request, max_retries=0)

    training.holder.run_coroutine_threadsafe(unload()).result(CLOSE_S)
