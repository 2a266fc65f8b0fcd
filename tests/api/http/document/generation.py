"""Tells schemathesis how to send files, and which cases of the phase `coverage` to send.

It runs in `.venv-peers` and imports nothing of ours.
"""

from __future__ import annotations

import os
from collections import Counter

import schemathesis
from schemathesis.generation.meta import CoveragePhaseData

MAX_ALIKE = int(os.environ.get("CONTRACT_MAX_ALIKE", "0"))
"""Cases of the phase `coverage` that are alike and still sent: the same scenario at the same
parameter of an operation, which a spec has for each of its settings. 0: all of them."""
alike: Counter[tuple[object, ...]] = Counter()


@schemathesis.serializer("application/zip", "application/gzip", "application/x-ndjson")
def as_file(ctx: schemathesis.SerializationContext, value: object) -> bytes:
    """Return the bytes of a file."""
    del ctx
    data = getattr(value, "data", value)
    return data if isinstance(data, bytes) else str(data).encode(errors="replace")


@schemathesis.hook
def map_case(context: schemathesis.HookContext, case: schemathesis.Case) -> schemathesis.Case:
    """Leave the cursor out of a valid request: the service refuses one that it did not make."""
    del context
    if case.meta is not None and case.meta.generation.mode.is_positive:
        case.query.pop("cursor", None)
    return case


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case) -> bool:
    """Drop a case of which enough alike were sent."""
    meta = case.meta
    if not MAX_ALIKE or meta is None or not isinstance(meta.phase.data, CoveragePhaseData):
        return True
    data = meta.phase.data
    kind = (case.operation.label, data.scenario, data.parameter_location, data.parameter)
    alike[*kind, meta.generation.mode] += 1
    return alike[*kind, meta.generation.mode] <= MAX_ALIKE
