"""The listings: training runs, checkpoints and sessions, as the SDK's RestClient reads them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from trainer.tinker_server import wire
from trainer.tinker_server.accounts import account_of
from trainer.tinker_server.disk import WEIGHTS, ModelRecord, SavedState
from trainer.tinker_server.errors import RequestRefused
from trainer.tinker_server.http.bodies import parsed, query
from trainer.tinker_server.service import TinkerService
from trainer.tinker_server.unnamed import is_named


class RestHandlers:
    """Their handlers."""

    def __init__(self, service: TinkerService) -> None:
        self._service = service

    async def training_runs(self, request: Request) -> dict[str, Any]:
        """Return a page of the models, the oldest first."""
        page = query(request, wire.Page)
        records = [each for each in self._service.disk.models() if _is_own(request, each.model_id)]
        return {
            "training_runs": [self._run(each) for each in records[page.rows]],
            "cursor": page.cursor(len(records)),
        }

    async def training_run(self, request: Request) -> dict[str, Any]:
        """Return one model."""
        return self._run(self._service.disk.model(request.path_params["model_id"]))

    async def checkpoints(self, request: Request) -> dict[str, Any]:
        """Return a model's checkpoints, the oldest first."""
        saved = self._named(request.path_params["model_id"])
        return {"checkpoints": [_checkpoint(each) for each in saved]}

    async def all_checkpoints(self, request: Request) -> dict[str, Any]:
        """Return a page of all models' checkpoints, the newest first."""
        page = query(request, wire.Page)
        saved = [
            each
            for each in reversed(self._service.disk.all_checkpoints())
            if is_named(each) and _is_own(request, each.model_id)
        ]
        return {
            "checkpoints": [_checkpoint(each) for each in saved[page.rows]],
            "cursor": page.cursor(len(saved)),
        }

    async def sessions(self, request: Request) -> dict[str, Any]:
        """Return a page of the sessions that last, the newest first."""
        page = query(request, wire.Page)
        own = [each for each in self._service.session_ids() if _is_own(request, each)]
        return {"sessions": own[::-1][page.rows]}

    async def session(self, request: Request) -> dict[str, Any]:
        """Return the models and sampling sessions of a session, also of one that has ended."""
        session_id = request.path_params["session_id"]
        models, samplers = self._service.disk.of_session(session_id)
        if not (models or samplers):
            self._service.check_session(session_id)
        return {"training_run_ids": models, "sampler_ids": samplers}

    async def delete_checkpoint(self, request: Request) -> Response:
        """Delete a checkpoint."""
        self._service.disk.delete(self.checkpoint_of(request))
        return Response(status_code=204)

    async def set_ttl(self, request: Request) -> Response:
        """Let a checkpoint expire, or no longer."""
        body = await parsed(request, wire.SetTtl)
        self._service.disk.set_ttl(self.checkpoint_of(request), body.ttl_seconds)
        return Response(status_code=204)

    async def publish(self, request: Request) -> Response:
        """Refuse: nothing is public here."""
        del request
        raise RequestRefused(
            "this server has no public checkpoints: whoever has the key can read all of its account"
        )

    def checkpoint_of(self, request: Request) -> SavedState:
        """Return the checkpoint that a path names.

        Raises:
            Unknown: there is none.
        """
        params = request.path_params
        return self._service.disk.find(f"tinker://{params['model_id']}/{params['checkpoint_id']}")

    def _named(self, model_id: str) -> list[SavedState]:
        return [each for each in self._service.disk.checkpoints(model_id) if is_named(each)]

    def _run(self, record: ModelRecord) -> dict[str, Any]:
        saved = self._named(record.model_id)
        states = [_checkpoint(each) for each in saved if each.kind == WEIGHTS]
        samplers = [_checkpoint(each) for each in saved if each.kind != WEIGHTS]
        last = max([record.created_at, *(each.info.created_at for each in saved)])
        return {
            "training_run_id": record.model_id,
            "base_model": record.base_model,
            "model_owner": "local",
            "is_lora": True,
            "lora_rank": record.lora.rank,
            "last_request_time": last.isoformat(),
            "last_checkpoint": states[-1] if states else None,
            "last_sampler_checkpoint": samplers[-1] if samplers else None,
            "user_metadata": record.user_metadata,
        }


def _is_own(request: Request, name: str) -> bool:
    own: bool = account_of(name) == request.state.account
    return own


def _checkpoint(each: SavedState) -> dict[str, Any]:
    expires = each.info.expires_at
    return {
        "checkpoint_id": f"{each.kind}/{each.name}",
        "checkpoint_type": "training" if each.kind == WEIGHTS else "sampler",
        "time": each.info.created_at.isoformat(),
        "tinker_path": each.path,
        "size_bytes": each.size_bytes,
        "expires_at": expires.isoformat() if expires else None,
    }
