"""The protocol's routes: parse, one call of the service, response."""

from __future__ import annotations

import asyncio
import io
import secrets
import tarfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from trainer.tinker_server import wire
from trainer.tinker_server.accounts import refuse_foreign
from trainer.tinker_server.errors import RequestRefused, TooLarge, TooManyJobs
from trainer.tinker_server.http.bodies import parsed, read
from trainer.tinker_server.http.rest import RestHandlers
from trainer.tinker_server.service import TinkerService

POLL_S = 20.0
"""Wait of a request for a result (seconds); the SDK's timeout is 45."""
LINK_S = 900.0
"""Lifetime of an archive's download address (seconds)."""
RETRY_AFTER_S = "1"
_API = "/api/v1"
_Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
_Handled: TypeAlias = Callable[[Request], Awaitable[dict[str, Any] | Response]]


def create_app(service: TinkerService) -> Starlette:
    """Return the application; its routes are those of RL clients."""
    handlers = _Handlers(service)
    posts: dict[str, Callable[[Request], Awaitable[dict[str, Any]]]] = {
        "client/config": handlers.config,
        "create_session": handlers.create_session,
        "session_heartbeat": handlers.heartbeat,
        "create_model": handlers.create_model,
        "unload_model": handlers.unload_model,
        "get_info": handlers.get_info,
        "create_sampling_session": handlers.create_sampler,
        "asample": handlers.sample,
        "forward": handlers.forward,
        "forward_backward": handlers.forward_backward,
        "optim_step": handlers.optim_step,
        "save_weights": handlers.save_weights,
        "load_weights": handlers.load_weights,
        "save_weights_for_sampler": handlers.save_for_sampler,
        "weights_info": handlers.weights_info,
        "telemetry": handlers.telemetry,
    }
    routes = [
        Route(f"{_API}/retrieve_future", _protected(service, handlers.retrieve), methods=["POST"]),
        Route(f"{_API}/healthz", handlers.health),
        Route(f"{_API}/get_server_capabilities", _protected(service, handlers.capabilities)),
        Route(f"{_API}/samplers/{{sampler_id}}", _protected(service, handlers.sampler)),
        Route("/download/{token}", handlers.download),
        *_listings(service, handlers),
    ]
    for name, handler in posts.items():
        routes.append(Route(f"{_API}/{name}", _protected(service, handler), methods=["POST"]))
    return Starlette(routes=routes)


def _listings(service: TinkerService, handlers: _Handlers) -> list[Route]:
    rest = handlers.rest
    runs = f"{_API}/training_runs"
    one = f"{runs}/{{model_id}}/checkpoints/{{checkpoint_id:path}}"

    def route(path: str, handler: _Handled, *methods: str) -> Route:
        return Route(path, _protected(service, handler), methods=methods or ["GET"])

    return [
        route(runs, rest.training_runs),
        route(f"{runs}/{{model_id}}", rest.training_run),
        route(f"{runs}/{{model_id}}/checkpoints", rest.checkpoints),
        route(f"{_API}/checkpoints", rest.all_checkpoints),
        route(f"{_API}/sessions", rest.sessions),
        route(f"{_API}/sessions/{{session_id}}", rest.session),
        route(f"{one}/archive", handlers.archive),
        route(f"{one}/publish", rest.publish, "POST", "DELETE"),
        route(f"{one}/ttl", rest.set_ttl, "PUT"),
        route(one, rest.delete_checkpoint, "DELETE"),
    ]


def _protected(service: TinkerService, handler: _Handled) -> _Handler:
    """Return a route that checks the API key and turns errors into responses."""
    accounts = service.settings.accounts

    async def answer(request: Request) -> Response:
        account = accounts.of_key(request.headers.get("X-API-Key", ""))
        if account is None:
            return _problem(401, "wrong X-API-Key")
        request.state.account = account
        if "protobuf" in request.headers.get("content-type", ""):
            return _problem(415, "this server speaks JSON, as the SDK 0.24.1 does")
        try:
            refuse_foreign(account, request.path_params)
            result = await handler(request)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            return _problem(422, f"{place}: {first['msg']}")
        except RequestRefused as refused:
            return _problem(refused.status, str(refused), is_closed=isinstance(refused, TooLarge))
        return result if isinstance(result, Response) else JSONResponse(result)

    return answer


def _problem(status: int, detail: str, *, is_closed: bool = False) -> JSONResponse:
    """Return an error; `is_closed` ends the connection, so that the rest of a body is not read."""
    headers = {"Connection": "close"} if is_closed else {}
    if status == TooManyJobs.status:
        headers["Retry-After"] = RETRY_AFTER_S
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


class _Handlers:
    def __init__(self, service: TinkerService) -> None:
        self._service = service
        self.rest = RestHandlers(service)
        self._links: dict[str, tuple[Path, float]] = {}

    async def health(self, request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"})

    async def config(self, request: Request) -> dict[str, Any]:
        """Return the SDK's features: sequential chunks, JSON, httpx."""
        await read(request)
        return {"parallel_fwdbwd_chunks": False, "use_pyqwest_transport": False}

    async def telemetry(self, request: Request) -> dict[str, Any]:
        """Accept and discard."""
        await read(request)
        return {"status": "accepted"}

    async def capabilities(self, request: Request) -> dict[str, Any]:
        del request
        service = self._service
        model = {
            "model_name": service.base.name,
            "max_context_length": service.context,
            "max_lora_rank": service.settings.max_rank,
        }
        return {"supported_models": [model]}

    async def create_session(self, request: Request) -> dict[str, Any]:
        body = await parsed(request, wire.CreateSession)
        session_id = self._service.create_session(body, account=request.state.account)
        return {"type": "create_session", "session_id": session_id}

    async def heartbeat(self, request: Request) -> dict[str, Any]:
        self._service.heartbeat((await parsed(request, wire.SessionHeartbeat)).session_id)
        return {"type": "session_heartbeat"}

    async def create_model(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._service.create_model(await parsed(request, wire.CreateModel))}

    async def unload_model(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._service.unload_model(await parsed(request, wire.OfModel))}

    async def get_info(self, request: Request) -> dict[str, Any]:
        record = self._service.disk.model((await parsed(request, wire.OfModel)).model_id)
        return {
            "type": "get_info",
            "model_id": record.model_id,
            "model_name": record.base_model,
            "is_lora": True,
            "lora_rank": record.lora.rank,
            "model_data": {
                "arch": self._service.base.architecture,
                "model_name": record.base_model,
                "tokenizer_id": self._service.tokenizer_id,
            },
        }

    async def create_sampler(self, request: Request) -> dict[str, Any]:
        sampler_id = self._service.create_sampler(await parsed(request, wire.CreateSampler))
        return {"type": "create_sampling_session", "sampling_session_id": sampler_id}

    async def sampler(self, request: Request) -> dict[str, Any]:
        record = self._service.disk.sampler(request.path_params["sampler_id"])
        return record.model_dump()

    async def sample(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._service.sample(await parsed(request, wire.AskSample))}

    async def forward(self, request: Request) -> dict[str, Any]:
        body = await parsed(request, wire.Forward)
        job = self._service.forward(body.model_id, body.seq_id, body.forward_input, backward=False)
        return {"request_id": job, "model_id": body.model_id}

    async def forward_backward(self, request: Request) -> dict[str, Any]:
        body = await parsed(request, wire.ForwardBackward)
        job = self._service.forward(
            body.model_id, body.seq_id, body.forward_backward_input, backward=True
        )
        return {"request_id": job, "model_id": body.model_id}

    async def optim_step(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._service.optim_step(await parsed(request, wire.OptimStep))}

    async def save_weights(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._service.save_weights(await parsed(request, wire.SaveWeights))}

    async def load_weights(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._service.load_weights(await parsed(request, wire.LoadWeights))}

    async def save_for_sampler(self, request: Request) -> dict[str, Any]:
        body = await parsed(request, wire.SaveForSampler)
        return {"request_id": self._service.save_for_sampler(body)}

    async def retrieve(self, request: Request) -> dict[str, Any] | Response:
        body = await parsed(request, wire.RetrieveFuture)
        self._service.jobs.refuse_foreign(request.state.account, body.request_id)
        result = await self._service.jobs.result(body.request_id, wait_s=POLL_S)
        if result is None:
            why = self._service.jobs.why_paused(body.request_id)
            state = {"queue_state": "active"}
            if why is not None:
                # The SDK logs this for its user.
                state = {"queue_state": "paused_capacity", "queue_state_reason": why}
            return JSONResponse(state, status_code=408)
        return result

    async def weights_info(self, request: Request) -> dict[str, Any]:
        checkpoint = self._service.disk.find((await parsed(request, wire.WeightsInfo)).tinker_path)
        record = self._service.disk.model(checkpoint.model_id)
        lora = record.lora
        return {
            "base_model": record.base_model,
            "is_lora": True,
            "lora_rank": lora.rank,
            "train_unembed": lora.train_unembed,
            "train_mlp": lora.train_mlp,
            "train_attn": lora.train_attn,
        }

    async def archive(self, request: Request) -> Response:
        """Redirect to a temporary address that needs no key."""
        checkpoint, now = self.rest.checkpoint_of(request), time.monotonic()
        self._links = {name: link for name, link in self._links.items() if link[1] > now}
        token = secrets.token_urlsafe(24)
        self._links[token] = (checkpoint.directory, now + LINK_S)
        return RedirectResponse(str(request.base_url.replace(path=f"/download/{token}")), 302)

    async def download(self, request: Request) -> Response:
        directory, until = self._links.get(request.path_params["token"], (Path(), 0.0))
        if until < time.monotonic() or not directory.is_dir():
            return _problem(404, "the address is old: ask for the archive again")
        archive = await asyncio.to_thread(_archive, directory)
        return Response(archive, media_type="application/x-tar")


def _archive(directory: Path) -> bytes:
    """Return the adapter's files as a tar, with the marker file that the SDK's tool expects."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path in sorted(directory.glob("adapter_*")):
            tar.add(path, arcname=path.name)
        tar.addfile(tarfile.TarInfo("checkpoint_complete"))
    return archive.getvalue()
