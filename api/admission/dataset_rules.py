"""Admits or refuses a run on a dataset version, by the findings of lint.

What it finds is never silent: it keeps the run from being stored, or is stored with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api.datasets.errors import DatasetUnusable
from api.tables import DatasetVersion
from hillclimb.datasets.lint.blocking import MIN_DIFFERENT, TOO_FEW
from hillclimb.datasets.lint.findings import RULES
from hillclimb.datasets.lint.tool_tokens import GIVEN, TOOL_CODES, ToolCount, find_crowded
from hillclimb.spec.data import BLOCKING_LINT
from hillclimb.spec.run import RunSpec

MEASURED = ("train", "eval")
"""Kinds of runs whose result is a figure on the eval tasks."""
MAX_NAMED = 5
"""Names or places that a sentence lists before it counts the rest."""

_Fault = tuple[str, str]
"""A finding's code, and where it is, in words."""


def admit(
    spec: RunSpec,
    version: DatasetVersion,
    table: Mapping[str, Any],
    measured: Mapping[str, ToolCount],
    *,
    is_resumed: bool,
) -> tuple[str, ...]:
    """Return what the run carries of lint's errors, a sentence for each code.

    Args:
        spec: of the run, with its environments.
        version: what it is to use.
        table: the version's numbers, of the run's environments.
        measured: tokens that tools took in runs like it.
        is_resumed: the run goes on with what it was admitted to once; nothing is refused.

    Raises:
        DatasetUnusable: it trains or evaluates, and `data.allow_lint` leaves an error out.
    """
    found_places: dict[str, list[str]] = {}
    faults = [*_stored(version, table), *_tools(spec, version, table, measured)]
    for code, place in [*faults, *_too_few(spec, table)]:
        found_places.setdefault(code, []).append(place)
    sentences = {
        code: f"{code} {listed(places, '; ')}: {RULES[code].remedy}"
        for code, places in found_places.items()
    }
    stops = spec.kind in MEASURED and not is_resumed
    refused = [
        c for c in found_places if stops and c in BLOCKING_LINT and c not in spec.data.allow_lint
    ]
    if refused:
        raise DatasetUnusable(
            f"lint finds in {spec.data.dataset}: {'; '.join(sentences[code] for code in refused)}."
            f" Mend that, or allow it with data.allow_lint: [{', '.join(refused)}]"
        )
    return tuple(f"lint finds {sentence}." for sentence in sentences.values())


def listed(names: Sequence[str], comma: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    first = comma.join(names[:MAX_NAMED])
    return first if len(names) <= MAX_NAMED else f"{first} and {len(names) - MAX_NAMED} more"


def _stored(version: DatasetVersion, table: Mapping[str, Any]) -> Iterator[_Fault]:
    """Yield the errors found when the version was made, but for tools: those depend on the run."""
    for each in version.lint["findings"]:
        env_key = each["env_key"]
        is_ours = env_key is None or env_key in table
        if each["severity"] == "error" and is_ours and each["code"] not in TOOL_CODES:
            place = f"in {env_key} ({each['message']})" if env_key else f"({each['message']})"
            yield each["code"], place


def _tools(
    spec: RunSpec,
    version: DatasetVersion,
    table: Mapping[str, Any],
    measured: Mapping[str, ToolCount],
) -> Iterator[_Fault]:
    """Hold the tools against the tokens that this run's model may read."""
    typed = version.options.get("lint", {}).get("tool_tokens", {})
    explicit = {key: ToolCount(tokens=tokens, source=GIVEN) for key, tokens in typed.items()}
    num_tasks = {key: facts["train"] + facts["eval"] for key, facts in table.items()}
    limit = spec.rollout.max_input_length
    for each in find_crowded({**measured, **explicit}, limit, num_tasks):
        yield each.code, f"in {each.env_key} ({each.message})"


def _too_few(spec: RunSpec, table: Mapping[str, Any]) -> Iterator[_Fault]:
    """Find out whether the eval tasks of all environments are too few to show anything."""
    different = sum(facts["unique_eval"] for facts in table.values())
    if spec.kind in MEASURED and 0 < different < MIN_DIFFERENT:
        counted = f"{different} different eval task{'' if different == 1 else 's'}"
        yield TOO_FEW, f"({counted} in all, and no change shows on fewer than {MIN_DIFFERENT})"
