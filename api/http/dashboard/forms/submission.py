"""Contents of the submit page as plain values: the form, the plan, the mistakes of a spec."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from api.http.dashboard.forms.spec_fields import SpecGroup, spec_form
from api.http.dashboard.forms.spec_values import (
    Document,
    NotOnForm,
    document_of,
    read_text,
    texts_of,
    write_text,
)
from hillclimb.hardware.presets.presets import Preset, presets
from hillclimb.protocol.payloads.hardware import CandidatePayload, HardwarePayload, RangePayload
from hillclimb.protocol.payloads.runs import PlanPayload
from hillclimb.protocol.spec_problems import SpecProblem
from hillclimb.spec.backend.counts import counted

View = Literal["form", "text"]
Contents = dict[str, Any]

SMALL_RUN: Mapping[str, Any] = {
    "name": "first-run",
    "data": {"env_keys": ["booking", "github"]},
    "schedule": {"total_steps": 10},
}
"""What the page begins with: a run of two miniature apps that any installation carries."""
OPEN_AT_FIRST = frozenset({"", "data"})
"""Sections that are unfolded; of the others the page says how many keys are filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormDraft:
    """A spec while it is being written: the texts of fields, or one text."""

    view: View
    texts: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def document(self) -> Document:
        """Return the spec; raises TextRejected for a text that is none."""
        return read_text(self.text) if self.view == "text" else document_of(self.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCheck:
    """The service's answer to a draft: the plan, or the mistakes."""

    plan: PlanPayload | None = None
    problems: tuple[SpecProblem, ...] = ()
    document: Document | None = None
    """Null for a text that cannot be read."""


def draft_of(fields: Mapping[str, str]) -> FormDraft:
    """Return the draft that a form sent."""
    if fields.get("view") == "text":
        return FormDraft(view="text", text=fields.get("text", "").replace("\r\n", "\n"))
    marked = {name[5:]: text for name, text in fields.items() if name.startswith("spec.")}
    return FormDraft(
        view="form", texts={name: text.replace("\r\n", "\n") for name, text in marked.items()}
    )


def draft_from(document: Mapping[str, Any], view: View, text: str | None = None) -> FormDraft:
    """Return a draft of a document; one that the form cannot hold is shown as text."""
    if view == "form":
        try:
            return FormDraft(view="form", texts=texts_of(document))
        except NotOnForm:
            pass
    return FormDraft(view="text", text=write_text(document) if text is None else text)


def switched(draft: FormDraft, view: View) -> tuple[FormDraft, str]:
    """Return the draft in another view, and why that could not be, if it could not.

    Raises TextRejected for a text that cannot be read.
    """
    document = draft.document()
    if view == "text":
        return (draft if draft.view == "text" else draft_from(document, "text")), ""
    try:
        return FormDraft(view="form", texts=texts_of(document)), ""
    except NotOnForm as error:
        return draft, f"{error} It stays text."


def submit_contents(draft: FormDraft, checked: SpecCheck, *, token: str, chosen: str) -> Contents:
    """Return the contents of the whole page; `chosen` names the preset that it began with."""
    errors = _errors_by_place(checked.problems) if draft.view == "form" else {}
    preset = presets().get(chosen)
    return {
        "token": token,
        "key": secrets.token_urlsafe(16),
        "view": draft.view,
        "text": draft.text,
        "form": _section(spec_form(), draft.texts, errors) if draft.view == "form" else None,
        "presets": [_choice(each) for each in presets().values()],
        "chosen": chosen,
        "about": preset.about if preset is not None else "",
        "outcome": outcome_contents(draft, checked),
    }


def outcome_contents(draft: FormDraft, checked: SpecCheck) -> Contents:
    """Return the plan with its cost and warnings, or the mistakes, each with its field."""
    places = _places() if draft.view == "form" else {}
    plan = checked.plan
    return {
        "status": _status(checked),
        "tone": "bad" if checked.problems else "warn" if plan and plan.warnings else "good",
        "problems": [
            {
                "place": _place(each.pointer, places),
                "where": _dotted(each.pointer),
                "message": each.message,
            }
            for each in checked.problems
        ],
        "plan": _plan(plan) if plan is not None else None,
        "commands": _commands(checked.document) if checked.document is not None else None,
    }


def _section(group: SpecGroup, texts: Mapping[str, str], errors: Mapping[str, str]) -> Contents:
    """Return a group of the form with its texts, and how much of it is filled in."""
    groups = [_section(inner, texts, errors) for inner in group.groups]
    fields = [
        {"field": each, "text": texts.get(each.path, ""), "error": errors.get(each.path, "")}
        for each in group.fields
    ]
    num_set = sum(bool(each["text"]) for each in fields)
    if group.path:
        num_set += sum(each["num_set"] for each in groups)
    chosen = texts.get(group.path, "") if group.is_optional else ""
    error = errors.get(group.path, "") if group.path else ""
    has_error = bool(error) or any(each["error"] for each in fields)
    has_error = has_error or bool(group.path and any(each["has_error"] for each in groups))
    is_nested = "." in group.path
    return {
        "path": group.path,
        "help": group.help,
        "is_optional": group.is_optional,
        "chosen": chosen,
        "fields": fields,
        "groups": groups,
        "num_set": num_set,
        "error": error,
        "has_error": has_error,
        "is_open": has_error or group.path in OPEN_AT_FIRST or (is_nested and bool(num_set)),
    }


def _choice(preset: Preset) -> Contents:
    return {"name": preset.name, "about": preset.about}


def _places() -> dict[str, str]:
    """Return what mistakes can be shown beside: paths of fields and sections, by themselves."""
    form = spec_form()
    groups = (each.path for each in form.all_groups() if each.path)
    return {path: path for path in (*groups, *(each.path for each in form.all_fields()))}


def _errors_by_place(problems: Iterable[SpecProblem]) -> dict[str, str]:
    places = _places()
    errors: dict[str, str] = {}
    for each in problems:
        place = _place(each.pointer, places)
        errors[place] = f"{errors[place]} {each.message}" if place in errors else each.message
    return errors


def _place(pointer: str, places: Collection[str]) -> str:
    """Return the field or section that a mistake is in; empty where none is as near."""
    parts = _dotted(pointer).split(".")
    while parts and ".".join(parts) not in places:
        parts.pop()
    return ".".join(parts)


def _dotted(pointer: str) -> str:
    parts = (each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:])
    return ".".join(parts)


def _status(checked: SpecCheck) -> str:
    if checked.plan is None:
        number = len(checked.problems)
        return f"{counted(number, 'mistake')}: this cannot be submitted yet."
    plan = checked.plan
    warnings = counted(len(plan.warnings), "warning") if plan.warnings else "no warnings"
    return f"Valid, with {warnings}. {_cost(plan)} {_queue(plan)}"


def _cost(plan: PlanPayload) -> str:
    """Return a sentence on what the run costs."""
    hardware = plan.hardware
    if hardware is None:
        where = plan.spec["backend"]["type"]
        if where == "tinker":
            return "No machines are rented; what the Tinker server bills is not known here."
        return "No machines are rented: it runs on the runners of this installation."
    if hardware.hourly_usd is None:
        return "What its machines cost is not known."
    longest = hardware.longest_usd
    most = f", at most {_usd(longest)} in {hardware.max_hours:g} h" if longest else ""
    return f"Its machines cost {_usd(hardware.hourly_usd)} an hour{most}."


def _queue(plan: PlanPayload) -> str:
    queue = plan.queue
    return f"Position {queue.position} in the queue. {queue.reason or 'It would start next.'}"


def _plan(plan: PlanPayload) -> Contents:
    hardware = plan.hardware
    return {
        "warnings": plan.warnings,
        "cost": _cost(plan),
        "queue": _queue(plan),
        "facts": _facts(plan.spec),
        "from_defaults": plan.from_defaults,
        "config_hash": plan.config_hash[:12],
        "dataset": plan.dataset,
        "hardware": _hardware(hardware) if hardware is not None else None,
        "awaits_prices": hardware is not None and hardware.prices.is_awaited,
        "resolved": write_text(plan.spec),
    }


def _facts(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the run would do, in a few figures."""
    kind = str(spec["kind"])
    facts = [("Kind", kind), ("Model", str(spec["model"]["source"]))]
    if kind == "train":
        batch, samples = (
            spec["schedule"]["train_batch_size"],
            spec["rollout"]["n_samples_per_prompt"],
        )
        facts += [
            ("Steps", f"{spec['schedule']['total_steps']:,}"),
            ("Rollouts per step", f"{batch * samples:,}"),
        ]
    return facts


def _hardware(hardware: HardwarePayload) -> Contents:
    return {
        "candidates": [_candidate(each) for each in hardware.candidates],
        "prices": hardware.prices.summary,
    }


def _candidate(each: CandidatePayload) -> Contents:
    estimate = each.estimate
    return {
        "label": each.label,
        "hourly": _usd(each.hourly_usd) if each.hourly_usd is not None else "–",
        "why_not": each.why_not or "",
        "lines": estimate.lines if estimate is not None else (),
        "suggestions": each.suggestions,
    }


def _usd(span: RangePayload) -> str:
    low, high = f"${span.low:,.2f}", f"${span.high:,.2f}"
    return low if low == high else f"{low} to {high}"


def _commands(document: Document) -> Contents:
    """Return what a shell would be told; a quoted heredoc passes on every character as it is."""
    return {
        "cli": f"cat > run.yaml <<'END_OF_SPEC'\n{write_text(document)}END_OF_SPEC\n"
        "hillclimb submit run.yaml",
        "curl": 'curl -H "Authorization: Bearer $HILLCLIMB_API_KEY"'
        ' -H "Content-Type: application/json" -H "Idempotency-Key: $(uuidgen)"'
        " --data-binary @- \"$HILLCLIMB_API_URL/v1/runs\" <<'END_OF_SPEC'\n"
        f"{json.dumps(document, ensure_ascii=False)}\nEND_OF_SPEC",
    }
