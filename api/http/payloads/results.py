"""Builds the payloads of a run's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hillclimb.protocol.payloads.results.reports import DecodingComparison, ReportPayload


def describe_report(facts: Mapping[str, Any]) -> ReportPayload:
    """Return the report of these facts; a decoding with the name of a field has no comparison."""
    decodings = [name for name in facts["decodings"] if name not in ReportPayload.model_fields]
    comparisons = {name: DecodingComparison.of(facts[name]) for name in decodings}
    return ReportPayload.model_validate({**facts, **comparisons})
