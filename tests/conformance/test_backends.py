"""Every case on every backend that needs nothing but this machine (docs/verified.md has the table).

`make test-long` takes `QUICK`; `make e2e` (HILLCLIMB_E2E=1) takes all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance import cases
from tests.conformance.backends import BackendUnderTest
from tests.conformance.cases import CASES, Case

pytestmark = [pytest.mark.stack, pytest.mark.long]
ALL = os.environ.get("HILLCLIMB_E2E") == "1"
QUICK: dict[str, tuple[Case, ...]] = {
    # A runner's trainer is killed in tests/e2e/test_kill_matrix.py.
    "runner": (
        cases.bad_spec_is_refused,
        cases.cancelled_while_queued,
        cases.cancelled_while_provisioning,
    ),
    "clusters": (cases.crash_is_recovered_from, cases.cancelled_while_provisioning),
    "tinker": (cases.crash_is_recovered_from,),
}
"""Two starts of a trainer each, where there is one: a minute and a half in all."""


def chosen() -> Iterator[object]:
    for name, quick in QUICK.items():
        for case in CASES if ALL else quick:
            yield pytest.param(name, case, id=f"{name}-{case.__name__}")
    if ALL:
        case = cases.trains_to_its_end
        yield pytest.param("gang", case, id=f"gang-{case.__name__}")


@pytest.mark.parametrize(("name", "case"), tuple(chosen()))
def test_case(name: str, case: Case, backends: dict[str, BackendUnderTest]) -> None:
    case(backends[name])
