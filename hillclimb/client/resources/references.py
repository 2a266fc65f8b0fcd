"""Finds the run that a user means: by id, unique prefix of the id, name, or `@last`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hillclimb.client.errors import EnvUnknown, RunAmbiguous, RunUnknown
from hillclimb.protocol.payloads.runs import RunList, RunSummary
from hillclimb.spec.training.model import RUN, checkpoint_source

LAST = "@last"
"""The newest run of the project."""
MAX_CANDIDATES = 5
_ID = re.compile(r"run_[0-9a-z]{26}")
_AT_STEP = re.compile(r"(@?[^@]*)(?:@([^@]*))?", re.DOTALL)

ListRuns = Callable[..., RunList]


def split_step(text: str) -> tuple[str, str | None]:
    """Return run and step of `RUN@STEP`; the step of `RUN` is None.

    Raises:
        RunUnknown: there are more parts.
    """
    match = _AT_STEP.fullmatch(text)
    if match is None:
        raise RunUnknown(f"{text!r} is no run and step: write RUN or RUN@STEP")
    return match[1], match[2]


def find_run(list_runs: ListRuns, reference: str) -> str:
    """Return the id of the run that is meant; a complete id is not looked up.

    A name or a prefix must fit one run; an exact name goes before names and ids that begin so.

    Raises:
        RunUnknown: no run fits; the sentence names similar ones.
        RunAmbiguous: several fit; the sentence lists them.
    """
    if _ID.fullmatch(reference):
        return reference
    if not reference:
        raise RunUnknown("no run is named: write an id, the beginning of one, a name or @last")
    if reference == LAST:
        newest = list_runs(limit=1).data
        if not newest:
            raise RunUnknown("There is no run yet: hillclimb submit SPEC creates one")
        return newest[0].id
    fitting = list_runs(match=reference, limit=MAX_CANDIDATES + 1).data
    named = [run for run in fitting if run.name == reference]
    candidates = named or fitting
    if len(candidates) == 1:
        return candidates[0].id
    if not candidates:
        raise RunUnknown(f"There is no run {reference!r}; {_similar(list_runs, reference)}")
    lines = [f"{run.id}  {run.name}  {run.status}" for run in candidates[:MAX_CANDIDATES]]
    more = ["and more"] if len(candidates) > MAX_CANDIDATES else []
    head = f"several runs are {reference!r}, newest first:"
    raise RunAmbiguous("\n  ".join([head, *lines, *more]))


def require_env(env: str, known: Collection[str], owner: str) -> None:
    """Refuse an environment that its owner, a run or dataset, does not have.

    Raises:
        EnvUnknown: the sentence names a similar one and all that there are.
    """
    if env in known:
        return
    close = difflib.get_close_matches(env, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise EnvUnknown(f"{owner} has no environment {env!r}{hint} It has {', '.join(known)}")


def with_run_source(find: Callable[[str], str], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec whose `model.source: run:NAME` or `run:@last` has the id of the run.

    Raises:
        RunUnknown, RunAmbiguous: as `find_run`.
    """
    model = spec.get("model")
    source = model.get("source") if isinstance(model, Mapping) else None
    if not isinstance(source, str) or not source.startswith(RUN) or checkpoint_source(source):
        return dict(spec)
    reference, step = split_step(source.removeprefix(RUN))
    resolved = f"{RUN}{find(reference)}{'' if step is None else f'@{step}'}"
    return {**spec, "model": {**dict(model or {}), "source": resolved}}


def _similar(list_runs: ListRuns, reference: str) -> str:
    runs: Sequence[RunSummary] = list_runs(limit=100).data
    names = list(dict.fromkeys(run.name for run in runs))
    parts = [name for name in names if reference.casefold() in name.casefold()]
    close = parts or difflib.get_close_matches(reference, names, n=3)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close[:3])}?"
    return "hillclimb runs lists them"
