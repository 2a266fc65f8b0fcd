"""The protocol's routes: parse, one call of the desk, answer."""

from __future__ import annotations

import io
import secrets
import tarfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from trainer.tinker_server import wire
from trainer.tinker_server.desk import Desk
from trainer.tinker_server.disk import Checkpoint, ModelRecord
from trainer.tinker_server.errors import Refused

POLL_S = 20.0
"""How long a request for a result waits for it; the SDK gives up after 45."""
LINK_S = 900.0
"""How long an archive can be downloaded from the address that was given out (seconds)."""
_API = "/api/v1"
_Face: TypeAlias = Callable[[Request], Awaitable[Response]]
_Asked = TypeVar("_Asked", bound=BaseModel)


def create_app(desk: Desk) -> Starlette:
    """Return the application; its routes are those that a client of RL needs."""
    faces = _Faces(desk)
    posts: dict[str, Callable[[Request], Awaitable[dict[str, Any]]]] = {
        "client/config": faces.config,
        "create_session": faces.create_session,
        "session_heartbeat": faces.heartbeat,
        "create_model": faces.create_model,
        "unload_model": faces.unload_model,
        "get_info": faces.get_info,
        "create_sampling_session": faces.create_sampler,
        "asample": faces.sample,
        "forward": faces.forward,
        "forward_backward": faces.forward_backward,
        "optim_step": faces.optim_step,
        "save_weights": faces.save_weights,
        "load_weights": faces.load_weights,
        "save_weights_for_sampler": faces.save_for_sampler,
        "weights_info": faces.weights_info,
        "telemetry": faces.telemetry,
    }
    runs = f"{_API}/training_runs"
    one = f"{runs}/{{model_id}}/checkpoints/{{checkpoint_id:path}}"
    routes = [
        Route(f"{_API}/retrieve_future", _told(desk, faces.retrieve), methods=["POST"]),
        Route(f"{_API}/healthz", faces.health),
        Route(f"{_API}/get_server_capabilities", _told(desk, faces.capabilities)),
        Route(f"{_API}/samplers/{{sampler_id}}", _told(desk, faces.sampler)),
        Route(runs, _told(desk, faces.training_runs)),
        Route(f"{runs}/{{model_id}}", _told(desk, faces.training_run)),
        Route(f"{runs}/{{model_id}}/checkpoints", _told(desk, faces.checkpoints)),
        Route(f"{one}/archive", _told(desk, faces.archive)),
        Route(one, _told(desk, faces.delete_checkpoint), methods=["DELETE"]),
        Route("/download/{token}", faces.download),
    ]
    for name, face in posts.items():
        routes.append(Route(f"{_API}/{name}", _told(desk, face), methods=["POST"]))
    return Starlette(routes=routes)


def _told(desk: Desk, face: Callable[[Request], Awaitable[dict[str, Any] | Response]]) -> _Face:
    """A route that wants the key and says what was refused."""

    async def answer(request: Request) -> Response:
        given = request.headers.get("X-API-Key", "")
        if not secrets.compare_digest(given.encode(), desk.settings.api_key.encode()):
            return _problem(401, "wrong X-API-Key")
        if "protobuf" in request.headers.get("content-type", ""):
            return _problem(415, "this server speaks JSON, as the SDK 0.24.1 does")
        try:
            found = await face(request)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            return _problem(422, f"{place}: {first['msg']}")
        except Refused as refused:
            return _problem(refused.status, str(refused))
        return found if isinstance(found, Response) else JSONResponse(found)

    return answer


def _problem(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status_code=status)


async def _asked(request: Request, kind: type[_Asked]) -> _Asked:
    return kind.model_validate_json(await request.body())


class _Faces:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._links: dict[str, tuple[Path, float]] = {}

    async def health(self, request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"})

    async def config(self, request: Request) -> dict[str, Any]:
        """Features of the SDK: chunks one after the other, JSON, httpx."""
        await request.body()
        return {"parallel_fwdbwd_chunks": False, "use_pyqwest_transport": False}

    async def telemetry(self, request: Request) -> dict[str, Any]:
        """Taken and dropped."""
        await request.body()
        return {"status": "accepted"}

    async def capabilities(self, request: Request) -> dict[str, Any]:
        del request
        desk = self._desk
        model = {
            "model_name": desk.base.name,
            "max_context_length": desk.context,
            "max_lora_rank": desk.settings.max_rank,
        }
        return {"supported_models": [model]}

    async def create_session(self, request: Request) -> dict[str, Any]:
        await _asked(request, wire.CreateSession)
        return {"type": "create_session", "session_id": self._desk.create_session()}

    async def heartbeat(self, request: Request) -> dict[str, Any]:
        self._desk.hear((await _asked(request, wire.SessionHeartbeat)).session_id)
        return {"type": "session_heartbeat"}

    async def create_model(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._desk.create_model(await _asked(request, wire.CreateModel))}

    async def unload_model(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._desk.unload_model(await _asked(request, wire.OfModel))}

    async def get_info(self, request: Request) -> dict[str, Any]:
        record = self._desk.disk.model((await _asked(request, wire.OfModel)).model_id)
        return {
            "type": "get_info",
            "model_id": record.model_id,
            "model_name": record.base_model,
            "is_lora": True,
            "lora_rank": record.lora.rank,
            "model_data": {
                "arch": "Qwen3ForCausalLM",
                "model_name": record.base_model,
                "tokenizer_id": str(self._desk.settings.model_dir),
            },
        }

    async def create_sampler(self, request: Request) -> dict[str, Any]:
        sampler_id = self._desk.create_sampler(await _asked(request, wire.CreateSampler))
        return {"type": "create_sampling_session", "sampling_session_id": sampler_id}

    async def sampler(self, request: Request) -> dict[str, Any]:
        record = self._desk.disk.sampler(request.path_params["sampler_id"])
        return record.model_dump()

    async def sample(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._desk.sample(await _asked(request, wire.AskSample))}

    async def forward(self, request: Request) -> dict[str, Any]:
        asked = await _asked(request, wire.Forward)
        job = self._desk.forward(asked.model_id, asked.seq_id, asked.forward_input, backward=False)
        return {"request_id": job, "model_id": asked.model_id}

    async def forward_backward(self, request: Request) -> dict[str, Any]:
        asked = await _asked(request, wire.ForwardBackward)
        job = self._desk.forward(
            asked.model_id, asked.seq_id, asked.forward_backward_input, backward=True
        )
        return {"request_id": job, "model_id": asked.model_id}

    async def optim_step(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._desk.optim_step(await _asked(request, wire.OptimStep))}

    async def save_weights(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._desk.save_weights(await _asked(request, wire.SaveWeights))}

    async def load_weights(self, request: Request) -> dict[str, Any]:
        return {"request_id": self._desk.load_weights(await _asked(request, wire.LoadWeights))}

    async def save_for_sampler(self, request: Request) -> dict[str, Any]:
        asked = await _asked(request, wire.SaveForSampler)
        return {"request_id": self._desk.save_for_sampler(asked)}

    async def retrieve(self, request: Request) -> dict[str, Any] | Response:
        asked = await _asked(request, wire.RetrieveFuture)
        result = await self._desk.jobs.result(asked.request_id, wait_s=POLL_S)
        if result is None:
            return JSONResponse({"queue_state": "active"}, status_code=408)
        return result

    async def weights_info(self, request: Request) -> dict[str, Any]:
        checkpoint = self._desk.disk.find((await _asked(request, wire.WeightsInfo)).tinker_path)
        record = self._desk.disk.model(checkpoint.model_id)
        lora = record.lora
        return {
            "base_model": record.base_model,
            "is_lora": True,
            "lora_rank": lora.rank,
            "train_unembed": lora.train_unembed,
            "train_mlp": lora.train_mlp,
            "train_attn": lora.train_attn,
        }

    async def training_runs(self, request: Request) -> dict[str, Any]:
        limit = int(request.query_params.get("limit", 20))
        offset = int(request.query_params.get("offset", 0))
        records = self._desk.disk.models()
        return {
            "training_runs": [_run(each) for each in records[offset : offset + limit]],
            "cursor": {"offset": offset, "limit": limit, "total_count": len(records)},
        }

    async def training_run(self, request: Request) -> dict[str, Any]:
        return _run(self._desk.disk.model(request.path_params["model_id"]))

    async def checkpoints(self, request: Request) -> dict[str, Any]:
        found = self._desk.disk.checkpoints(request.path_params["model_id"])
        return {"checkpoints": [_checkpoint(each) for each in found]}

    async def delete_checkpoint(self, request: Request) -> Response:
        self._desk.disk.drop(self._named(request))
        return Response(status_code=204)

    async def archive(self, request: Request) -> Response:
        """Lead to an address that needs no key, for a while."""
        checkpoint, now = self._named(request), time.monotonic()
        self._links = {name: link for name, link in self._links.items() if link[1] > now}
        token = secrets.token_urlsafe(24)
        self._links[token] = (checkpoint.directory, now + LINK_S)
        return RedirectResponse(str(request.base_url.replace(path=f"/download/{token}")), 302)

    async def download(self, request: Request) -> Response:
        directory, until = self._links.get(request.path_params["token"], (Path(), 0.0))
        if until < time.monotonic() or not directory.is_dir():
            return _problem(404, "the address is old: ask for the archive again")
        return Response(_archive(directory), media_type="application/x-tar")

    def _named(self, request: Request) -> Checkpoint:
        given = request.path_params
        return self._desk.disk.find(f"tinker://{given['model_id']}/{given['checkpoint_id']}")


def _archive(directory: Path) -> bytes:
    """The adapter's files, and the mark that the SDK's own tool looks for."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as tar:
        for path in sorted(directory.glob("adapter_*")):
            tar.add(path, arcname=path.name)
        tar.addfile(tarfile.TarInfo("checkpoint_complete"))
    return whole.getvalue()


def _run(record: ModelRecord) -> dict[str, Any]:
    return {
        "training_run_id": record.model_id,
        "base_model": record.base_model,
        "model_owner": "local",
        "is_lora": True,
        "lora_rank": record.lora.rank,
        "last_request_time": record.created_at.isoformat(),
    }


def _checkpoint(each: Checkpoint) -> dict[str, Any]:
    expires = each.kept.expires_at
    return {
        "checkpoint_id": f"{each.kind}/{each.name}",
        "checkpoint_type": "training" if each.kind == "weights" else "sampler",
        "time": each.kept.created_at.isoformat(),
        "tinker_path": each.path,
        "size_bytes": each.size_bytes,
        "expires_at": expires.isoformat() if expires else None,
    }
