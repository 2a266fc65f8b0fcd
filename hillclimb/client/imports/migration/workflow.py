"""Inputs of the workflows `Fleet Task Training (SkyPilot)` and `(Tinker)`."""

from __future__ import annotations

from collections.abc import Mapping

from hillclimb.client.imports.migration.draft import Json, MigrationRefused, SpecDraft
from hillclimb.hardware.presets.cloud import CloudRefused, on_cloud
from hillclimb.hardware.presets.presets import ALIASES, NoSuchPreset, presets
from hillclimb.spec.rules.old_names import WORKFLOW_INPUTS

SKYPILOT_PRESET, TINKER_PRESET = "openenv-fleet-grpo", "fleet-tinker-grpo"
OF_TINKER = frozenset({"model_name", "max_steps", "batch_size", "n_samples_per_prompt"})
OF_SKYPILOT = frozenset({"cloud", "task_name"})
_COMMON = frozenset({"modality", "env_key", "max_tasks"})
INPUTS = _COMMON | OF_TINKER | OF_SKYPILOT


def workflow_inputs(document: Mapping[object, Json]) -> dict[str, Json] | None:
    """Return the inputs in a document, or None if it has none.

    The document is the inputs themselves, the body of a dispatch (`inputs`), or the workflow's own
    file, whose defaults count. YAML 1.1 reads its key `on` as true.
    """
    triggers = document.get("on", document.get(True))
    if isinstance(triggers, Mapping):
        dispatch = triggers.get("workflow_dispatch")
        fields = dispatch.get("inputs") if isinstance(dispatch, Mapping) else None
        if isinstance(fields, Mapping):
            return {
                str(name): each.get("default") if isinstance(each, Mapping) else None
                for name, each in fields.items()
            }
    inner = document.get("inputs")
    inputs = inner if isinstance(inner, Mapping) else document
    values = {str(name): value for name, value in inputs.items()}
    return values if set(values) & INPUTS else None


def migrate_workflow(inputs: Mapping[str, Json]) -> SpecDraft:
    """Return the spec of a workflow's inputs, on the preset with that workflow's defaults."""
    used = {name for name, value in inputs.items() if value not in (None, "")}
    both = sorted(used & OF_TINKER), sorted(used & OF_SKYPILOT)
    if all(both):
        raise MigrationRefused(
            f"{both[0][0]} is an input of the Tinker workflow and {both[1][0]} of the SkyPilot one:"
            " leave the inputs of one of them out"
        )
    draft = SpecDraft.of_preset(TINKER_PRESET if both[0] else _task(inputs))
    draft.place_known(inputs, WORKFLOW_INPUTS)
    if inputs.get("cloud"):
        try:
            draft.spec = on_cloud(draft.spec, str(inputs["cloud"]))
        except CloudRefused as refused:
            draft.remark("cloud", str(refused))
    for name in sorted(used - INPUTS - set(WORKFLOW_INPUTS)):
        draft.remark(name, "no input of the two workflows, so it has no place")
    draft.remark(
        "tasks",
        "the workflow downloaded them from S3; here they are the dataset fleet-tool-use, which you"
        " register once (hillclimb datasets create fleet-tool-use tasks.json)",
    )
    return draft


def _task(inputs: Mapping[str, Json]) -> str:
    """Return the preset of `task_name`.

    Raises:
        MigrationRefused: no preset was made after that task file.
    """
    name = str(inputs.get("task_name") or SKYPILOT_PRESET).removesuffix(".yaml")
    name = name.rpartition("/")[2]
    if name not in presets() and name not in ALIASES:
        raise MigrationRefused(
            f"task_name: no preset was made after the task file {name!r}. Migrate the file itself"
            f" (hillclimb migrate {name}.yaml), or take one of"
            f" {', '.join([*presets(), *ALIASES])}"
        ) from NoSuchPreset(name)
    return name
