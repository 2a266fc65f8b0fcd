"""The cases of every backend (`tests/conformance`) on SkyPilot and a Slurm of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.conformance.backends import INLINE, limited
from tests.conformance.cases import CASES, Case
from tests.conformance.service import Service
from tests.e2e.slurm.conftest import Phases
from tests.e2e.slurm.stack import ON_SLURM, RentingStack

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.stack,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.xdist_group("slurm"),
]
PATIENCE_S = 900.0
"""Each answer of SkyPilot's server takes seconds, on a busy machine a minute."""
NODES = "127.0.0.2,127.0.0.3"


class OnSlurm:
    """Clusters of one node each; Slurm itself is asked what there is."""

    def __init__(self, stack: RentingStack) -> None:
        self.stack = stack
        # The nodes' account cannot read a folder of ours: the model is one that is shipped.
        self.service = Service(stack.options, stack.http, model="builtin:tiny-qwen3-a")
        self.service.patience_s = PATIENCE_S

    def sections(self) -> Mapping[str, Any]:
        sky = {
            "candidates": [ON_SLURM],
            "trainer": {"type": "prebuilt", "python": str(self.stack.python)},
        }
        lengths = {
            "n_samples_per_prompt": 4,
            "max_input_length": 880,
            "max_generate_length": 96,
            "max_sequence_length": 1024,
        }
        return INLINE | {"rollout": lengths, "backend": {"type": "skypilot", "skypilot": sky}}

    def nothing_free(self) -> AbstractContextManager[None]:
        return limited(self.service)

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Slurm gives nobody a node."""
        self._nodes("State=DRAIN", "Reason=conformance")
        try:
            yield
        finally:
            self._nodes("State=RESUME")

    def left(self, run_id: str) -> list[str]:
        clusters = self.stack.clusters(run_id)
        mine = [each["name"] for each in clusters]
        jobs = [name for _, name, _ in self.stack.slurm.jobs()]
        return [job for job in jobs if any(name in job for name in mine)] + [
            f"{each['name']} is {each['state']}"
            for each in clusters
            if each["state"] != "terminated"
        ]

    def _nodes(self, *changes: str) -> None:
        self.stack.slurm.ask("scontrol", "update", f"NodeName={NODES}", *changes)


@pytest.fixture(scope="module")
def backend(stack: RentingStack) -> Iterator[OnSlurm]:
    yield OnSlurm(stack)
    assert stack.slurm.jobs() == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Case, backend: OnSlurm, phases: Phases) -> None:
    with phases.phase(case.__name__):
        case(backend)
