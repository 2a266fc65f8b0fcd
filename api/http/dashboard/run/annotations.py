"""Tags, links and note of a run as a form shows them, and what a form that was sent changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from api.admission.annotations import MAX_LINKS, MAX_NOTE, RunAnnotation
from api.http.problems import INVALID, Problem
from api.tables import Run
from hillclimb.protocol.spec_problems import sentence_of


def annotations_contents(run: Run) -> dict[str, Any]:
    """Return what people wrote about the run, also as the texts of the form's fields."""
    links = [{"label": label, "url": url} for label, url in sorted(run.links.items())]
    return {
        "tags": sorted(run.tags),
        "links": links,
        "note": run.note or "",
        "tags_text": ", ".join(sorted(run.tags)),
        "links_text": "\n".join(f"{each['label']} = {each['url']}" for each in links),
        "max_links": MAX_LINKS,
        "max_note": MAX_NOTE,
    }


def annotation_of(fields: Mapping[str, str]) -> RunAnnotation:
    """Return what a form changes: it sends its texts, and those that it was opened with.

    Only the difference of the two is a change, so that what somebody else added meanwhile stays.
    Raises Problem with a sentence for a text that is neither.
    """
    old_tags, new_tags = _tags(fields.get("old_tags", "")), _tags(fields.get("tags", ""))
    old_links, new_links = _links(fields.get("old_links", "")), _links(fields.get("links", ""))
    changed = {label: url for label, url in new_links.items() if old_links.get(label) != url}
    removed: dict[str, str | None] = {label: None for label in old_links if label not in new_links}
    note, old_note = (_lines(fields.get(name, "")) for name in ("note", "old_note"))
    try:
        return RunAnnotation.model_validate(
            {
                "add_tags": sorted(new_tags - old_tags),
                "remove_tags": sorted(old_tags - new_tags),
                "links": removed | changed,
                "note": note if note != old_note else None,
            }
        )
    except ValidationError as error:
        raise Problem(INVALID, _sentence(error)) from error


def _tags(text: str) -> set[str]:
    return {each.strip() for each in text.split(",") if each.strip()}


def _links(text: str) -> dict[str, str]:
    links: dict[str, str] = {}
    for line in filter(None, (each.strip() for each in text.splitlines())):
        label, separator, url = line.partition("=")
        if not separator or not label.strip():
            raise Problem(INVALID, f"{line!r} is no link: write LABEL = ADDRESS, one per line.")
        links[label.strip()] = url.strip()
    return links


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _sentence(error: ValidationError) -> str:
    detail = error.errors(include_url=False)[0]
    part, *inner = (str(each) for each in detail["loc"]) if detail["loc"] else ("",)
    name = {"add_tags": "Tags", "remove_tags": "Tags", "links": "Links", "note": "Note"}.get(part)
    value = detail["input"] if part.endswith("tags") else next(iter(inner), "")
    about = f" ({value!r})" if value and part != "note" else ""
    sentence = sentence_of(detail)
    return f"{name}{about}: {sentence}" if name else sentence
