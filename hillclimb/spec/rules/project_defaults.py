"""The defaults of a project: values for the keys that a submitted spec leaves out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from hillclimb.spec.backend.skypilot import BudgetSpec
from hillclimb.spec.hosts import FOR_RUNS, SecretName, TrainerVariable
from hillclimb.spec.monitoring.reporting import SlackChannel, WandbName
from hillclimb.spec.rules.dotted_keys import set_key
from hillclimb.spec.rules.required_secrets import FLEET_KEY, WANDB_KEY
from hillclimb.spec.section import Section

TINKER_KEY = "TINKER_API_KEY"
AWS_KEYS = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})
TOOL_USE = "tool_use"
"""The modality of a spec that names none."""


class WandbDefaults(Section):
    """Defaults of `tracking.wandb`; null: none."""

    mode: Literal["disabled", "offline", "online"] | None = None
    entity: WandbName | None = None
    project: WandbName | None = None


class DefaultValues(Section):
    """Values for keys of a spec; null or empty: none."""

    slack_channel: SlackChannel | None = None
    """`notify.slack.channel`: the channel of a run whose spec leaves `notify.slack` out."""
    wandb: WandbDefaults = WandbDefaults()
    """Keys of `tracking.wandb`."""
    budget: BudgetSpec | None = None
    """`budget`, for runs that rent clusters."""
    secrets: dict[TrainerVariable, SecretName] = Field(default_factory=dict, max_length=32)
    """`secrets`, each only for runs that read the variable: `FLEET_API_KEY` with the provider
    `fleet`, `WANDB_API_KEY` with the W&B mode `online`, `TINKER_API_KEY` with the backend `tinker`,
    AWS keys with a model on S3, and a variable `RUN_SECRET_…` that the spec names."""


class DefaultsCase(DefaultValues):
    """Defaults of some runs only: they go before the project's general ones."""

    backend: Literal["runner", "skypilot", "tinker"] | None = None
    """Only runs of this `backend.type`; null: of any."""
    modality: Literal["tool_use", "computer_use"] | None = None
    """Only runs of this `data.modality` (`tool_use` where the spec names none); null: of any."""


class ProjectDefaults(DefaultValues):
    """Values for the keys that a submitted spec leaves out; a key that it sets to null stays null.

    They are part of the resolved spec that is stored with the run: a later change concerns later
    submissions only.
    """

    cases: Annotated[tuple[DefaultsCase, ...], Field(max_length=16)] = ()
    """Defaults by backend and modality; of several that apply, a later one goes before."""

    def secret_names(self) -> tuple[str, ...]:
        """Return the names of all secrets that the defaults name."""
        mappings = (self.secrets, *(case.secrets for case in self.cases))
        return tuple(dict.fromkeys(name for each in mappings for name in each.values()))

    def channels(self) -> tuple[str, ...]:
        """Return the Slack channels that the defaults name."""
        named = (each.slack_channel for each in (self, *self.cases))
        return tuple(each for each in named if each is not None)


NO_DEFAULTS = DefaultValues()


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A spec's document with the defaults, and the dotted keys that they set."""

    document: dict[str, Any]
    keys: tuple[str, ...]


def apply_defaults(
    document: Mapping[str, Any],
    defaults: ProjectDefaults,
    operator: DefaultValues = NO_DEFAULTS,
) -> Applied:
    """Return the document (a spec as its user wrote it) with the defaults of its absent keys.

    Those of the service's `operator` go after the project's. A document that is not a valid spec
    stays invalid: its sections are read, never repaired.
    """
    applied = copy.deepcopy(dict(document))
    cases = [case for case in defaults.cases if _applies(case, document)]
    layers = (*reversed(cases), defaults, operator)
    keys = [
        key
        for layer in layers
        for key, value in _values(layer, document)
        if _set_if_absent(applied, key, value)
    ]
    variables = _variables_read_by(applied)
    for layer in layers:
        for variable, name in layer.secrets.items():
            key = f"secrets.{variable}"
            if variable in variables and _set_if_absent(applied, key, name):
                keys.append(key)
    return Applied(document=applied, keys=tuple(keys))


def _applies(case: DefaultsCase, document: Mapping[str, Any]) -> bool:
    modality = _at(document, "data", "modality") or TOOL_USE
    return case.backend in (None, _backend(document)) and case.modality in (None, modality)


def _values(layer: DefaultValues, document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if layer.slack_channel is not None:
        yield "notify.slack", {"channel": layer.slack_channel}
    for key, value in layer.wandb.model_dump(exclude_none=True).items():
        yield f"tracking.wandb.{key}", value
    if layer.budget is not None and _backend(document) == "skypilot":
        yield "budget", layer.budget.model_dump(mode="json")


def _set_if_absent(document: dict[str, Any], dotted: str, value: Any) -> bool:  # noqa: ANN401
    """Set a key unless it, or a null on its way, is there already; return True if it was set."""
    place: Any = document
    for part in dotted.split("."):
        if not isinstance(place, dict):
            return False
        if part not in place:
            set_key(document, dotted, value)
            return True
        place = place[part]
    return False


def _variables_read_by(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the variables that the trainer of such a spec reads a secret from."""
    texts = _strings(document.get("environment")) | _strings(document.get("validation"))
    variables = {text for text in texts if text.startswith(FOR_RUNS)}
    if _at(document, "environment", "provider") == "fleet":
        variables.add(FLEET_KEY)
    if _at(document, "tracking", "wandb", "mode") == "online":
        variables.add(WANDB_KEY)
    if _backend(document) == "tinker":
        variables.add(TINKER_KEY)
    if str(_at(document, "model", "source")).startswith("s3://"):
        variables |= AWS_KEYS
    return frozenset(variables)


def _backend(document: Mapping[str, Any]) -> str:
    return str(_at(document, "backend", "type") or "runner")


def _at(document: Mapping[str, Any], *path: str) -> Any:  # noqa: ANN401 - any JSON
    place: Any = document
    for part in path:
        place = place.get(part) if isinstance(place, Mapping) else None
    return place


def _strings(value: Any) -> set[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return {text for each in value.values() for text in _strings(each)}
    if isinstance(value, (list, tuple)):
        return {text for each in value for text in _strings(each)}
    return set()
