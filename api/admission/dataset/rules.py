"""Admits or refuses a run on a dataset version, by the findings of lint.

An error either blocks the run or is stored with it as a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api.datasets.errors import DatasetUnusable
from api.tables import DatasetVersion
from hillclimb.datasets.lint.blocking import MIN_DIFFERENT, TOO_FEW
from hillclimb.datasets.lint.findings import RULES
from hillclimb.datasets.lint.tool_tokens import EXPLICIT, TOOL_CODES, ToolCount, find_crowded
from hillclimb.spec.data import BLOCKING_LINT
from hillclimb.spec.run import RunSpec

MEASURED = ("train", "eval")
"""Kinds of runs whose result is a figure on the eval tasks."""
MAX_NAMED = 5
"""Names or places that a message lists; it counts the others."""

_Fault = tuple[str, str]
"""A finding's code and its place as text."""


def admit(
    spec: RunSpec,
    version: DatasetVersion,
    table: Mapping[str, Any],
    measured: Mapping[str, ToolCount],
    *,
    is_resumed: bool,
) -> tuple[str, ...]:
    """Return the lint errors of a run that is admitted, one sentence per code.

    Args:
        spec: the run's spec, with its environments.
        version: the dataset version that the run uses.
        table: the version's task counts, for the run's environments.
        measured: token counts of tools in similar runs.
        is_resumed: the run was admitted before; nothing blocks it.

    Raises:
        DatasetUnusable: the run trains or evaluates, and `data.allow_lint` does not list a
            blocking error.
    """
    places_by_code: dict[str, list[str]] = {}
    faults = [*_stored(version, table), *_tools(spec, version, table, measured)]
    for code, place in [*faults, *_too_few(spec, table)]:
        places_by_code.setdefault(code, []).append(place)
    sentences = {
        code: f"{code} {listed(places, '; ')}: {RULES[code].remedy}"
        for code, places in places_by_code.items()
    }
    stops = spec.kind in MEASURED and not is_resumed
    # A run on a few tasks is a test: too few eval tasks to prove a change do not block it.
    is_test = spec.kind == "train" and spec.data.max_tasks is not None
    allowed = {*spec.data.allow_lint, *((TOO_FEW,) if is_test else ())}
    refused = [c for c in places_by_code if stops and c in BLOCKING_LINT and c not in allowed]
    if refused:
        raise DatasetUnusable(
            f"lint finds in {spec.data.dataset}: {'; '.join(sentences[code] for code in refused)}."
            f" Fix that, or allow it with data.allow_lint: [{', '.join(refused)}]"
        )
    return tuple(f"lint finds {sentence}." for sentence in sentences.values())


def listed(names: Sequence[str], comma: str = ", ") -> str:
    """Join the first names, with the number of further ones."""
    first = comma.join(names[:MAX_NAMED])
    return first if len(names) <= MAX_NAMED else f"{first} and {len(names) - MAX_NAMED} more"


def _stored(version: DatasetVersion, table: Mapping[str, Any]) -> Iterator[_Fault]:
    """Yield the version's stored lint errors, except those about tools: they depend on the run."""
    for finding in version.lint["findings"]:
        env_key, message = finding["env_key"], finding["message"]
        is_ours = env_key is None or env_key in table
        if finding["severity"] == "error" and is_ours and finding["code"] not in TOOL_CODES:
            yield finding["code"], f"in {env_key} ({message})" if env_key else f"({message})"


def _tools(
    spec: RunSpec,
    version: DatasetVersion,
    table: Mapping[str, Any],
    measured: Mapping[str, ToolCount],
) -> Iterator[_Fault]:
    """Yield the environments whose tools take too much of the model's context length."""
    typed = version.options.get("lint", {}).get("tool_tokens", {})
    explicit = {key: ToolCount(tokens=tokens, source=EXPLICIT) for key, tokens in typed.items()}
    num_tasks = {key: facts["train"] + facts["eval"] for key, facts in table.items()}
    limit = spec.rollout.max_input_length
    for finding in find_crowded({**measured, **explicit}, limit, num_tasks):
        yield finding.code, f"in {finding.env_key} ({finding.message})"


def _too_few(spec: RunSpec, table: Mapping[str, Any]) -> Iterator[_Fault]:
    """Yield an error if all environments together have too few eval tasks to prove a change."""
    different = sum(facts["unique_eval"] for facts in table.values())
    if spec.kind in MEASURED and 0 < different < MIN_DIFFERENT:
        counted = f"{different} different eval task{'' if different == 1 else 's'}"
        yield TOO_FEW, f"({counted} in all; fewer than {MIN_DIFFERENT} cannot prove a change)"
