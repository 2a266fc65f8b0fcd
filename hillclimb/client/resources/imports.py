"""The client's methods for imports; reached as `client.imports`."""

from __future__ import annotations

from pathlib import Path

import httpx

from hillclimb.client.http import Http, without_none
from hillclimb.protocol.payloads.runs import RunPayload

PATH = "/v1/imports"
UPLOAD_TIMEOUT = httpx.Timeout(1020.0, connect=5.0)
"""The service reads every line before it responds."""


class Imports:
    """Imports of past runs; raises what `Client` does.

    The same content under the same options returns the run of the first import.
    """

    def __init__(self, http: Http) -> None:
        self._http = http

    def skyrl(  # noqa: PLR0913 (one per parameter of the route)
        self,
        file: Path,
        *,
        source: str,
        decoding: str | None = None,
        temperature: float | None = None,
        pass_threshold: float | None = None,
        total_steps: int | None = None,
        model: str | None = None,
    ) -> RunPayload:
        """Import a zip of SkyRL's dumps, such as `hillclimb.client.imports.dump.packed` makes.

        `source` names the run; `decoding` and `temperature` are those of its evaluations, by
        default `greedy` and 0; `total_steps` is the last step that was planned.
        """
        options = {"source": source, "decoding": decoding, "temperature": temperature}
        options |= {"pass_threshold": pass_threshold, "total_steps": total_steps, "model": model}
        return self._upload("skyrl", file, options)

    def capsule(self, file: Path) -> RunPayload:
        """Import a capsule: a run that ended, with its events, outcomes and evaluations."""
        return self._upload("capsule", file, {})

    def wandb(
        self,
        file: Path,
        *,
        source: str,
        decoding: str | None = None,
        temperature: float | None = None,
        model: str | None = None,
    ) -> RunPayload:
        """Import JSON lines of `step` and `metrics`, plain or gzip, as the metrics of a run.

        `hillclimb.client.imports.history.packed` makes the file; `decoding` is that of the metrics
        `eval/…`, by default `greedy`.
        """
        options: dict[str, str | float | None] = {"source": source, "decoding": decoding}
        options |= {"temperature": temperature, "model": model}
        return self._upload("wandb", file, options)

    def _upload(self, kind: str, file: Path, options: dict[str, str | float | None]) -> RunPayload:
        with file.open("rb") as content:
            return self._http.request(
                RunPayload,
                "POST",
                f"{PATH}/{kind}",
                params=without_none(options),
                content=content,
                timeout=UPLOAD_TIMEOUT,
            )
