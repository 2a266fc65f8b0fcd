"""The ladder `tinker`, against our own server of the protocol and its refusals."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.acceptance.targets import FACTS
from hillclimb.process.redactor import Redactor
from tests.trainer.envs.fleet_server import fleet_server
from tests.trainer.workers.tinker.server.local import (
    KEY,
    NAME,
    SDK_LEAVES_SOCKETS,
    tinker_server,
    write_model,
)
from trainer.errors import SpecError
from trainer.jobs.acceptance import tinker
from trainer.jobs.acceptance.tinker import TinkerLadder, tinker_account
from trainer.workers.tinker.account import TinkerAccount

pytestmark = SDK_LEAVES_SOCKETS


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("tinker")
    with tinker_server(write_model(root / "model"), root / "state") as address:
        yield address


async def climbed(url: str, *, key: str = KEY, model: str = NAME) -> tuple[CheckObservation, ...]:
    ladder = TinkerLadder(TinkerAccount(base_url=url, key=key), model)
    return await climb(ladder, Redactor((key,)))


async def test_an_adapter_takes_a_step_that_raises_what_it_is_paid_for(url: str) -> None:
    observations = await climbed(url)
    assert [each.name for each in observations if each.passed] == list(FACTS["tinker"].checks)
    assert "before the update" in observations[4].seen


async def test_a_wrong_key_is_said_to_be_wrong_and_stays_hidden(url: str) -> None:
    (only,) = await climbed(url, key="tml-of-nobody")
    assert (only.name, only.passed) == ("key", False)
    assert "set TINKER_API_KEY to a key of this server" in only.remedy
    assert "tml-of-nobody" not in only.seen


async def test_a_server_that_is_away_is_named_in_seconds_and_gets_no_key() -> None:
    (only,) = await climbed("http://127.0.0.1:9")
    assert only.seen.startswith("http://127.0.0.1:9: ")
    assert "check that this machine reaches the server" in only.remedy
    assert only.seconds < 5.0


async def test_a_server_that_never_answers_is_given_a_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tinker.ANSWER_S < 10.0
    monkeypatch.setattr(tinker, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (only,) = await climbed(f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "did not answer in 0.2 s" in only.seen
    assert "TINKER_BASE_URL" in only.remedy


async def test_a_server_of_another_kind_is_said_to_be_the_wrong_one() -> None:
    async with fleet_server() as server:
        (only,) = await climbed(server.url)
    assert (only.name, only.passed) == ("key", False)
    assert "correct TINKER_BASE_URL" in only.remedy


async def test_a_model_that_the_server_lacks_is_named_with_those_it_has(url: str) -> None:
    (only,) = await climbed(url, model="Qwen/Qwen3-8B")
    assert NAME in only.seen
    assert "name a model of this server" in only.remedy


def test_without_a_key_nothing_begins(tmp_path: Path) -> None:
    del tmp_path
    with pytest.raises(SpecError, match="set TINKER_API_KEY"):
        tinker_account({})
