"""`/admin/audit`: the audit log with filters and pages."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from api.http.requests.context import Services, ServicesDep
from api.http.routes.access import audit
from api.http.routes.web.dashboard import Visitor
from api.http.routes.web.forms.admin import AdminTab, show_tab
from api.tables.access.audit import AuditFilters
from api.tables.access.identity import Principal, Scope

router = APIRouter(include_in_schema=False)

LIST_LIMIT = 50
Text = Annotated[str, Query(max_length=300)]
Day = Annotated[str, Query(max_length=10)]


async def chosen_filters(
    actor: Text = "", route: Text = "", target: Text = "", since: Day = "", until: Day = ""
) -> dict[str, str]:
    """Return the filled-in fields of the form; what is no day is left out."""
    days = {name: day for name, day in (("since", since), ("until", until)) if _day(day)}
    words = {"actor": actor.strip(), "route": route.strip(), "target": target.strip()}
    return {name: word for name, word in words.items() if word} | days


@router.get("/admin/audit")
def audit_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    chosen: Annotated[dict[str, str], Depends(chosen_filters)],
    before: Annotated[str, Query(max_length=60)] = "",
) -> Response:
    """Show who changed what, newest first, to admins alone."""
    return show_tab(request, services, caller, _tab(services, chosen, before))


def _tab(services: Services, chosen: dict[str, str], before: str) -> AdminTab:
    since, until = _day(chosen.get("since", "")), _day(chosen.get("until", ""))
    filters = AuditFilters(
        actor=chosen.get("actor"),
        route=chosen.get("route"),
        target=chosen.get("target"),
        since=since,
        until=until + timedelta(days=1) if until else None,
    )

    def build(caller: Principal) -> dict[str, Any]:
        page = audit.list_audit_records(
            services, caller, filters, before=before or None, limit=LIST_LIMIT
        )
        older = urlencode(chosen | {"before": page.data[-1].id}) if page.has_more else None
        return {
            "records": page.data,
            "chosen": chosen,
            "older": older,
            "is_later": bool(before),
            "query": urlencode(chosen),
        }

    return AdminTab(name="audit", build=build, scope=Scope.ADMIN)


def _day(text: str) -> datetime | None:
    """Return the beginning of a day (UTC); null for what is none."""
    try:
        return datetime.combine(date.fromisoformat(text), time(), tzinfo=UTC)
    except ValueError:
        return None
