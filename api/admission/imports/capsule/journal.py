"""Events of a capsule: stored as they are, and parsed again where rows follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.admission.imports.errors import ImportRejected
from api.admission.imports.metrics import MAX_NAME_CHARS, is_name
from api.results.derive import without_nul
from api.tables.ids import new_id
from hillclimb.blobs.archive.capsule import CapsuleArchive
from hillclimb.protocol.events import Event, ProbeCompleted
from hillclimb.protocol.payloads.studies.capsule import EVENTS
from hillclimb.spec.section import Moment

MAX_EVENTS = 500_000
MAX_ATTEMPT = 1_000
MODELS = {model.model_fields["type"].default: model for model in get_args(Event)}
"""Events of a trainer by their type; the others are the service's own."""
MEASURED = frozenset({"step.completed", "eval.completed", "probe.completed", "step.abandoned"})
"""Events from which rows follow. Those about checkpoints are not among them: their files are not
in a capsule."""


class StoredEvent(BaseModel):
    """A line of `events.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    seq: Annotated[int, Field(ge=1)]
    type: Annotated[str, Field(pattern=r"^[a-z_]{1,60}\.[a-z_]{1,60}$")]
    created_at: Moment
    attempt: Annotated[int, Field(ge=1, le=MAX_ATTEMPT)] | None
    actor: Annotated[str, Field(max_length=300)]
    data: dict[str, Any]

    def row(self, run_id: str) -> dict[str, Any]:
        """Return the row of table `events`, with an id of its own."""
        row: dict[str, Any] = without_nul(
            {
                "run_id": run_id,
                "seq": self.seq,
                "id": new_id("evt"),
                "type": self.type,
                "attempt": self.attempt,
                "trainer_seq": None,
                "actor": self.actor,
                "data": self.data,
            }
        )
        return row | {"at": self.created_at}


def stored_events(archive: CapsuleArchive, *, last_seq: int) -> Iterator[StoredEvent]:
    """Yield the events in their order.

    Raises:
        ImportRejected: one is no event, or their numbers have a gap.
    """
    number = 0
    for line in archive.lines(EVENTS):
        number += 1
        try:
            event = StoredEvent.model_validate(line)
        except ValidationError as error:
            raise ImportRejected(f"{EVENTS} line {number}: {first_fault(error)}.") from error
        if event.seq != number or number > MAX_EVENTS:
            raise ImportRejected(
                f"{EVENTS} line {number} has the seq {event.seq}: they count up from 1, to"
                f" {MAX_EVENTS:,} at most."
            )
        _check(event)
        yield event
    if number != last_seq:
        raise ImportRejected(f"{EVENTS} has {number} events, and the manifest {last_seq}.")


def trainer_event(event: StoredEvent, outcomes: Sequence[Mapping[str, Any]] = ()) -> Event:
    """Return a trainer's event with its outcomes, as ingest took it.

    Raises:
        ImportRejected: its fields or its outcomes are not those of such an event.
    """
    model = MODELS[event.type]
    fields = {name: value for name, value in event.data.items() if name in model.model_fields}
    if "outcomes" in model.model_fields:
        fields["outcomes"] = outcomes
    if isinstance(fields.get("metrics"), Mapping):  # a NaN was stored as null
        fields["metrics"] = {k: v for k, v in fields["metrics"].items() if v is not None}
    if model is ProbeCompleted:  # its facts took the place of the environments' health
        fields["environments"] = event.data.get("health") or {}
    try:
        made: Event = model.model_validate(
            {**fields, "trainer_seq": event.seq, "at": event.created_at}
        )
    except ValidationError as error:
        raise ImportRejected(f"{EVENTS} line {event.seq}: {first_fault(error)}.") from error
    return made


def _check(event: StoredEvent) -> None:
    """Refuse an event of a trainer that is none: whatever reads the run relies on its fields."""
    _check_names(event)
    if event.type not in MODELS:
        return
    if event.attempt is None:
        raise ImportRejected(f"{EVENTS} line {event.seq}: a trainer's event has an attempt.")
    trainer_event(event)


def _check_names(event: StoredEvent) -> None:
    """Refuse names that no index can hold."""
    metrics = event.data.get("metrics")
    names = [event.data.get("decoding", ""), *(metrics if isinstance(metrics, Mapping) else ())]
    for name in names:
        if not is_name(name):
            raise ImportRejected(
                f"{EVENTS} line {event.seq}: names of metrics and decodings are printable text of"
                f" at most {MAX_NAME_CHARS} characters."
            )


def first_fault(error: ValidationError) -> str:
    """Return the place of the first mistake and what it is."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = "/".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"
