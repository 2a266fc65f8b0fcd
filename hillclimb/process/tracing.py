"""OpenTelemetry spans: exported by OTLP over HTTP where an endpoint is set, off and free elsewhere.

The only file that names `opentelemetry`, which it imports where tracing is on. A trace context
travels as the text of W3C's header `traceparent`: with the run, in its launch plan, and in the
environment of its trainer. Exporting happens in a thread; its failures are logged and harm nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables of which either turns tracing on; the SDK reads these and its other OTEL_... itself."""
TRACEPARENT = "TRACEPARENT"
"""Variable of a trainer's environment with the context of its attempt."""
FLUSH_S = 2.0
NANOSECONDS = 1_000_000_000

Attributes = Mapping[str, str | int | float | bool]
NOTHING: Attributes = {}


@dataclass(frozen=True, slots=True)
class _Tracing:
    provider: TracerProvider
    tracer: Tracer


class _State:
    """Tracing of this process; None while it is off."""

    tracing: _Tracing | None = None


def is_requested(environ: Mapping[str, str]) -> bool:
    """Return True where an endpoint is set, and the SDK is not switched off by its own variable."""
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not disabled and any(environ.get(name) for name in ENDPOINTS)


def start_tracing(service: str) -> bool:
    """Start tracing in this process if the environment requests it; `OTEL_SERVICE_NAME` renames it.

    Returns whether it is on. Call it after forking: the exporter has a thread.
    """
    if not is_requested(os.environ) or _State.tracing is not None:
        return _State.tracing is not None
    # Two hundred modules, which only traced processes should load.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    name = os.environ.get("OTEL_SERVICE_NAME", service)
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    # It would log a traceback for every batch that an absent collector does not take.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    _State.tracing = _Tracing(provider, provider.get_tracer("hillclimb"))
    return True


def stop_tracing() -> None:
    """Export what is left, within `FLUSH_S`, and turn tracing off."""
    tracing, _State.tracing = _State.tracing, None
    if tracing is not None:
        tracing.provider.force_flush(int(FLUSH_S * 1000))
        tracing.provider.shutdown()


def is_tracing() -> bool:
    """Return True while this process exports spans."""
    return _State.tracing is not None


@contextmanager
def span(
    name: str,
    *,
    parent: str | None = None,
    attributes: Attributes = NOTHING,
    is_request: bool = False,
) -> Iterator[Span | None]:
    """Record the block as a span; yields None while tracing is off.

    `parent` is a traceparent, by default the span around this one. `is_request`: of a server.
    """
    tracing = _State.tracing
    if tracing is None:
        yield None
        return
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    kind = SpanKind.SERVER if is_request else SpanKind.INTERNAL
    context = None if parent is None else _context(parent)
    with tracing.tracer.start_as_current_span(
        name, context=context, kind=kind, attributes=dict(attributes)
    ) as begun:
        yield begun


def record(
    name: str, *, parent: str | None, begin: float, end: float, attributes: Attributes = NOTHING
) -> str | None:
    """Record a span of the past, between two times in seconds since the epoch.

    Returns its traceparent, for spans below it; `parent` itself while tracing is off.
    """
    begun = begin_span(name, parent=parent, begin=begin, attributes=attributes)
    if begun is None:
        return parent
    begun.end(int(end * NANOSECONDS))
    return traceparent_of(begun)


def begin_span(
    name: str, *, parent: str | None, begin: float, attributes: Attributes = NOTHING
) -> Span | None:
    """Begin a span that its owner ends; None while tracing is off."""
    tracing = _State.tracing
    if tracing is None:
        return None
    return tracing.tracer.start_span(
        name,
        context=_context(parent),
        attributes=dict(attributes),
        start_time=int(begin * NANOSECONDS),
    )


def current_traceparent() -> str | None:
    """Return the traceparent of the span around the caller; None without one."""
    if _State.tracing is None:
        return None
    from opentelemetry.trace import get_current_span  # noqa: PLC0415

    current = get_current_span()
    return traceparent_of(current) if current.get_span_context().is_valid else None


def traceparent_of(begun: Span) -> str:
    """Return a span's context as the header `traceparent` has it."""
    context = begun.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _context(parent: str | None) -> Context:
    """Return the context of a traceparent, an empty one if it is null or malformed."""
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    carrier = {} if parent is None else {"traceparent": parent}
    return TraceContextTextMapPropagator().extract(carrier, Context())
