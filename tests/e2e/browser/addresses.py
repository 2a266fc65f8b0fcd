"""The pages of the dashboard, from the application's own routes: a new page cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Mapping

from api.http.requests.permissions import PERMISSIONS, Access

PARAMETERS = re.compile(r"\{(\w+)(?::path)?\}")
NO_PAGES = re.compile(
    r"/v1/|/static/"  # JSON; scripts and pictures
    r"|/(openapi\.json|llms\.txt|metrics)$|/docs/\{page:path\}\.md$"  # for machines
    r"|/login/oidc"  # leads to a provider of identities and back
)
"""Routes without a session that answer with no page of ours."""


def pages() -> list[str]:
    """Return the paths of all pages: what a session opens, and what needs none."""
    gets = {key.removeprefix("GET "): access for key, access in PERMISSIONS.items()}
    return [
        path
        for path, access in gets.items()
        if not path.startswith("POST ")
        and (access is Access.PAGE or (access is Access.OPEN and not NO_PAGES.search(path)))
    ]


def filled_in(path: str, values: Mapping[str, str]) -> str:
    """Return the path with the values of its parameters; raises KeyError for an unknown one."""
    return PARAMETERS.sub(lambda match: values[match[1]], path)


STATES = (
    "/?name=none",
    "/?tag=screens",
    "/submit?view=text",
    "/submit?preset=qwen3-8b",
    "/submit?run={run_id}",
    "/compare?a={run_id}@0&b={run_id}",
    "/runs/{preview_id}",
    "/runs/{probe_id}",
    "/runs/{eval_id}",
    "/runs/run_none",
    "/runs/{run_id}/rollouts?outcome=failed",
    "/runs/{run_id}/rollouts/{rollout_id}?beside={other_rollout}",
    "/runs/{eval_id}/config",
    "/runs/{eval_id}/checkpoints",
    "/issues?state=closed",
    "/admin/audit?actor=nobody",
)
"""Pages that look otherwise under another address: empty, filtered, of another kind of run."""
