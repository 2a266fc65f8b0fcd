"""The client's methods for the results of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx
from pydantic import JsonValue

from hillclimb.client.http import Http, without_none
from hillclimb.client.paths import of_run
from hillclimb.protocol.payloads.checkpoints import CheckpointList, CheckpointWithManifest
from hillclimb.protocol.payloads.events import Timeline
from hillclimb.protocol.payloads.results.comparison import RunComparison
from hillclimb.protocol.payloads.results.compute import Amount, ComputePayload
from hillclimb.protocol.payloads.results.evals import EvalList, RescoringList, RescoringPayload
from hillclimb.protocol.payloads.results.logs import LogPayload
from hillclimb.protocol.payloads.results.metrics import MetricList
from hillclimb.protocol.payloads.results.patterns import (
    PatternReport,
    PatternSearchList,
    PatternSearchResult,
)
from hillclimb.protocol.payloads.results.probes import ProbePayload
from hillclimb.protocol.payloads.results.prompts import PromptsPayload
from hillclimb.protocol.payloads.results.reports import PrintedTablePayload, ReportPayload
from hillclimb.protocol.payloads.results.rollouts import (
    RolloutList,
    RolloutWithTrajectory,
    TokenPage,
)
from hillclimb.protocol.payloads.results.signal import SignalReportPayload
from hillclimb.protocol.payloads.results.validations import ValidationPayload

RESCORE_TIMEOUT = httpx.Timeout(400.0, connect=5.0)
"""The service replays for at most 300 s, and waits for 20 before."""


class Results:
    """Results of the project's runs; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def metrics(
        self,
        run_id: str,
        *,
        names: str = "*",
        max_points: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
    ) -> MetricList:
        """Return metric series by name pattern (comma-separated globs).

        With `max_points` (2 to 10,000) a series of more steps is thinned to that many points: its
        first, and the last one of each of as many equal parts.
        """
        steps = {"from_step": from_step, "to_step": to_step}
        query = {"names": names, "max_points": max_points, **steps}
        return self._http.get(MetricList, of_run(run_id, "metrics"), query)

    def timeline(self, run_id: str, *, step: int | None = None) -> Timeline:
        """Return when the parts of a step took place, or of the whole run, as a trace."""
        return self._http.get(Timeline, of_run(run_id, "timeline"), {"step": step})

    def evals(
        self, run_id: str, *, threshold: float | None = None, verifier: str | None = None
    ) -> EvalList:
        """Return every evaluation of the run, overall and per environment.

        `threshold` rescores them: a rollout passes from this score on, in (0, 1]. `verifier` takes
        the grades of the rescoring by this version.
        """
        query = {"threshold": threshold, "verifier": verifier}
        return self._http.get(EvalList, of_run(run_id, "evals"), query)

    def rescore(
        self, run_id: str, *, split: str | None = None, step: int | None = None
    ) -> RescoringPayload:
        """Grade stored rollouts of a run again by the service's present verifier.

        `split` is `eval` by default; `step` selects one step.
        """
        body = without_none({"verifier": "present", "split": split, "step": step})
        return self._http.request(
            RescoringPayload,
            "POST",
            of_run(run_id, "rescorings"),
            json=body,
            timeout=RESCORE_TIMEOUT,
        )

    def rescorings(self, run_id: str) -> RescoringList:
        """Return the rescorings of a run, newest first."""
        return self._http.get(RescoringList, of_run(run_id, "rescorings"))

    def report(  # noqa: PLR0913 (one per parameter of the route)
        self,
        run_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        rule: str | None = None,
        k: int | None = None,
        threshold: float | None = None,
        verifier: str | None = None,
    ) -> ReportPayload:
        """Return the before/after report: per environment, per decoding, with p-values.

        `before` and `after` are steps, by default those of the first and the last evaluation;
        `rule` is the version of the verdicts' rule, by default the newest; `k` is that of pass@k,
        by default 1; `threshold` rescores both evaluations, and so does `verifier`, the version of
        a rescoring.
        """
        query: dict[str, str | float | None] = {"before": before, "after": after, "rule": rule}
        query |= {"k": k, "threshold": threshold, "verifier": verifier}
        return self._http.get(ReportPayload, of_run(run_id, "evals", "report"), query)

    def compare(  # noqa: PLR0913 (one per parameter of the route)
        self,
        a: str,
        b: str,
        *,
        rule: str | None = None,
        k: int | None = None,
        threshold: float | None = None,
        at: Amount | None = None,
        verifier: str | None = None,
    ) -> RunComparison:
        """Return how evaluation `b` differs from `a`, each a RUN or a RUN@STEP.

        `threshold` rescores both evaluations, and so does `verifier`, the version of a rescoring;
        `at` chooses the steps after equal amounts.
        """
        query: dict[str, str | float | None] = {"a": a, "b": b, "rule": rule, "k": k, "at": at}
        query |= {"threshold": threshold, "verifier": verifier}
        return self._http.get(RunComparison, "/v1/compare", query)

    def judge_table(self, table: Mapping[str, JsonValue]) -> PrintedTablePayload:
        """Return the verdicts that a printed table allows, over all pairings of its tasks.

        `table` has `rows` (`env_key`, `before`, `after`, and `num_tasks` where it is known), and if
        the table prints rates over all tasks, `overall`; `max_tasks` and `rule` (docs/api.md).
        """
        return self._http.request(
            PrintedTablePayload, "POST", "/v1/verdicts/tables", json=dict(table)
        )

    def compute(self, run_id: str) -> ComputePayload:
        """Return the ledger of what every step and evaluation of the run took."""
        return self._http.get(ComputePayload, of_run(run_id, "compute"))

    def signal(
        self, run_id: str, *, window: int | None = None, env: str | None = None
    ) -> SignalReportPayload:
        """Return the signal report of the newest `window` steps, for all environments or one."""
        query = {"window": window, "env": env}
        return self._http.get(SignalReportPayload, of_run(run_id, "signal"), query)

    def patterns(
        self,
        run_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        decoding: str | None = None,
        env: str | None = None,
        version: int | None = None,
    ) -> PatternReport:
        """Return the failure patterns of two evaluations, by default the first and the last.

        `version` is that of the detectors, by default the newest that searched all rollouts.
        """
        query = {"before": before, "after": after, "decoding": decoding, "env": env}
        query["version"] = version
        return self._http.get(PatternReport, of_run(run_id, "patterns"), query)

    def search_patterns(
        self, run_id: str, *, split: str | None = None, step: int | None = None
    ) -> PatternSearchResult:
        """Search stored rollouts of a run again by the service's present detectors.

        `split` is `eval` by default; `step` selects one step.
        """
        return self._http.request(
            PatternSearchResult,
            "POST",
            of_run(run_id, "patterns", "searches"),
            json=without_none({"detectors": "present", "split": split, "step": step}),
            timeout=RESCORE_TIMEOUT,
        )

    def pattern_searches(self, run_id: str) -> PatternSearchList:
        """Return the searches of a run's stored rollouts, the newest version first."""
        return self._http.get(PatternSearchList, of_run(run_id, "patterns", "searches"))

    def probe(self, run_id: str) -> ProbePayload:
        """Return the results of a run of kind `probe`, per environment."""
        return self._http.get(ProbePayload, of_run(run_id, "probe"))

    def validation(self, /, run_id: str, **filters: str | int | None) -> ValidationPayload:
        """Return the results of a run of kind `validate`, with one page of its rows."""
        return self._http.get(ValidationPayload, of_run(run_id, "validation"), filters)

    def trajectories(self, /, run_id: str, **filters: str | int | None) -> RolloutList:
        """Return one page of rollouts with their outcomes."""
        return self._http.get(RolloutList, of_run(run_id, "trajectories"), filters)

    def trajectory(self, run_id: str, rollout_id: str) -> RolloutWithTrajectory:
        """Return one rollout with its prompt, turns and tokens."""
        return self._http.get(RolloutWithTrajectory, of_run(run_id, "trajectories", rollout_id))

    def tokens(
        self,
        run_id: str,
        rollout_id: str,
        *,
        turn: int | None = None,
        start: int | None = None,
        limit: int | None = None,
    ) -> TokenPage:
        """Return one page of a rollout's tokens: log-probs, entropy, mask, weight version.

        `turn` selects one turn of the model, from 1; 0 is the prompt. The next page begins at
        `next_start`.
        """
        query = {"turn": turn, "start": start, "limit": limit}
        return self._http.get(TokenPage, of_run(run_id, "tokens", rollout_id), query)

    def rollouts(
        self,
        run_id: str,
        *,
        env: str | None = None,
        step: int | None = None,
        split: str | None = None,
        decoding: str | None = None,
    ) -> Iterator[bytes]:
        """Yield rollouts in bulk: JSON lines of `outcome` and `trajectory`, compressed by gzip."""
        query = {"env": env, "step": step, "split": split, "decoding": decoding}
        return self._http.file(of_run(run_id, "exports", "rollouts"), query)

    def tracking_files(self, run_id: str) -> Iterator[bytes]:
        """Yield the zip of the files that experiment trackers of the run wrote."""
        return self._http.file(of_run(run_id, "exports", "tracking"))

    def skyrl_dump(
        self, run_id: str, *, step: int | None = None, decoding: str | None = None
    ) -> Iterator[bytes]:
        """Yield the zip of the run's evaluations in SkyRL's layout."""
        query = {"step": step, "decoding": decoding}
        return self._http.file(of_run(run_id, "exports", "skyrl"), query)

    def prompts(
        self, run_id: str, *, env: str | None = None, task: str | None = None
    ) -> PromptsPayload:
        """Return the first prompts: tokens and hashes per environment, and some in full."""
        return self._http.get(PromptsPayload, of_run(run_id, "prompts"), {"env": env, "task": task})

    def logs(
        self,
        run_id: str,
        *,
        attempt: int | None = None,
        after: int = 0,
        filters: Mapping[str, str | None] | None = None,
    ) -> LogPayload:
        """Return the trainer's log from position `after` on.

        `filters`: `level`, `component`, `environment`, `text` (docs/api.md).
        """
        params = {"attempt": attempt, "after": after, **(filters or {})}
        return self._http.get(LogPayload, of_run(run_id, "logs"), params)

    def checkpoints(self, run_id: str) -> CheckpointList:
        """Return the run's checkpoints, newest first."""
        return self._http.get(CheckpointList, of_run(run_id, "checkpoints"))

    def checkpoint(self, run_id: str, step: int) -> CheckpointWithManifest:
        """Return one checkpoint with its manifest."""
        return self._http.get(CheckpointWithManifest, of_run(run_id, "checkpoints", step))

    def capsule(self, run_id: str, *, tasks: bool = False) -> Iterator[bytes]:
        """Yield the bytes of the run's capsule, with `tasks` also the rows of its dataset."""
        path = of_run(run_id, "capsule")
        return self._http.file(f"{path}?tasks=true" if tasks else path)

    def checkpoint_file(
        self, run_id: str, step: int, path: str, *, start: int = 0
    ) -> Iterator[bytes]:
        """Yield the bytes of one file of a checkpoint from byte `start` on."""
        url = of_run(run_id, "checkpoints", step, "files", path)
        return self._http.stored_file(url, start=start)
