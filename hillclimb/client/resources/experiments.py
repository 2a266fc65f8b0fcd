"""The client's methods for experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hillclimb.client.http import Http
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.studies.experiments import (
    ExperimentFigures,
    ExperimentList,
    ExperimentPayload,
    ExperimentResults,
)

PATH = "/v1/experiments"


class Experiments:
    """Experiments of the project; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(self, spec: Mapping[str, Any]) -> ExperimentPayload:
        """Create an experiment: key, title, hypothesis, watched metrics."""
        return self._http.request(ExperimentPayload, "POST", PATH, json=dict(spec))

    def list(self, *, before: str | None = None, limit: int | None = None) -> ExperimentList:
        """Return one page of experiments, newest first, older than that of the key `before`."""
        return self._http.get(ExperimentList, PATH, {"before": before, "limit": limit})

    def get(self, key: str) -> ExperimentPayload:
        """Return an experiment with what people wrote and its runs."""
        return self._http.get(ExperimentPayload, _of(key))

    def edit(self, key: str, changes: Mapping[str, Any]) -> ExperimentPayload:
        """Replace the parts that are named."""
        return self._http.request(ExperimentPayload, "PATCH", _of(key), json=dict(changes))

    def add(
        self, key: str, run_id: str, *, role: str = "variant", arm: str | None = None
    ) -> ExperimentPayload:
        """Add a run as `baseline` or `variant`; runs of one arm are seed replicates."""
        body = {"run_id": run_id, "role": role, "arm": arm}
        return self._http.request(ExperimentPayload, "POST", _of(key, "runs"), json=body)

    def remove(self, key: str, run: str) -> ExperimentPayload:
        """Remove a run by its id or its number; it goes on."""
        return self._http.request(ExperimentPayload, "DELETE", _of(key, "runs", quoted(run)))

    def sweep(self, key: str, sweep: Mapping[str, Any]) -> ExperimentPayload:
        """Launch a run for every combination of values and seeds; repeating it launches nothing."""
        return self._http.request(ExperimentPayload, "POST", _of(key, "sweep"), json=dict(sweep))

    def results(self, key: str, *, decoding: str | None = None) -> ExperimentResults:
        """Return the arms with intervals and the spread of their seeds, and the verdict."""
        return self._http.get(ExperimentResults, _of(key, "results"), {"decoding": decoding})

    def figures(self, key: str, *, decoding: str | None = None) -> ExperimentFigures:
        """Return the data of the figures."""
        return self._http.get(ExperimentFigures, _of(key, "figures"), {"decoding": decoding})

    def report(self, key: str) -> str:
        """Return `experiments.md` of one experiment."""
        return b"".join(self._http.file(_of(key, "report"))).decode()

    def changelog(self, *, limit: int = 20) -> str:
        """Return `changelog.md` of the newest experiments."""
        return b"".join(self._http.file(f"{PATH}/changelog?limit={limit}")).decode()


def _of(key: str, *parts: str) -> str:
    return "/".join((PATH, quoted(key), *parts))
