"""From a spec and the environment of a process to a platform, a key and the terms of instances."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import spec_body
from trainer.envs.choose import choose_provider
from trainer.envs.fleet.choice import account_of, fleet_provider, lease_options_of
from trainer.envs.fleet.provider import FleetProvider
from trainer.errors import SpecError

LOCAL = "http://127.0.0.1:7777"
KEY = {"FLEET_API_KEY": "very-secret"}


def spec(fleet: dict[str, Any] | None = None, **environment: Any) -> RunSpec:
    section = {"provider": "fleet", "fleet": fleet or {}, **environment}
    return RunSpec.model_validate(spec_body(environment=section))


def test_the_address_is_the_specs_then_the_runners() -> None:
    environ = {"FLEET_BASE_URL": LOCAL, **KEY}
    assert account_of(spec(), environ).base_url == LOCAL
    other = {"base_url": "http://localhost:8888"}
    assert account_of(spec(other), environ).base_url == "http://localhost:8888"


def test_fleets_own_platform_is_taken_only_as_an_experiment() -> None:
    with pytest.raises(
        SpecError, match=r"would use https://orchestrator\.fleetai\.com.*experimental"
    ):
        account_of(spec(), KEY)
    tried = RunSpec.model_validate(spec_body(environment={"provider": "fleet"}, experimental=True))
    assert account_of(tried, KEY).base_url == "https://orchestrator.fleetai.com"


def test_the_runners_key_goes_only_where_its_operator_says() -> None:
    body = {"provider": "fleet", "fleet": {"base_url": "https://fleet.example.org"}}
    asked = RunSpec.model_validate(spec_body(environment=body, experimental=True))
    with pytest.raises(SpecError, match="the runner's key goes only to the platform"):
        account_of(asked, KEY)
    operator = {"FLEET_BASE_URL": "https://fleet.example.org/", **KEY}
    assert account_of(asked, operator).base_url == "https://fleet.example.org"


def test_a_platform_on_the_runners_machine_needs_its_operators_consent() -> None:
    closed = {"HILLCLIMB_RUN_PRIVATE_HOSTS": "none", **KEY}
    with pytest.raises(SpecError, match=r"no public address.*HILLCLIMB_RUN_PRIVATE_HOSTS"):
        account_of(spec({"base_url": LOCAL}), closed)
    assert account_of(spec(), {"FLEET_BASE_URL": LOCAL, **closed}).base_url == LOCAL


def test_a_missing_key_is_named_and_a_key_is_never_shown() -> None:
    with pytest.raises(SpecError, match="set FLEET_API_KEY in the runner's environment"):
        account_of(spec({"base_url": LOCAL}), {})
    account = account_of(spec({"base_url": LOCAL}), KEY)
    assert "very-secret" not in repr(account)
    assert account.headers["Authorization"] == "Bearer very-secret"


def test_instances_outlive_rollouts_and_operations_are_shorter_than_calls() -> None:
    lease = lease_options_of(
        spec(call_timeout_s=12.0, overrides={"booking": {"call_timeout_s": 9.0}}), "t"
    )
    assert lease.operation_s == pytest.approx(3.0)
    # 300 s of trajectory, 60 s for retries, 12 s each for a last call and the verifier; a quarter
    # and a minute more
    assert lease.ttl_s == int(1.25 * 384.0 + 60.0)
    assert lease.body() == {
        "run_id": "t",
        "ttl_seconds": 540,
        "heartbeat_interval": 60,
        "created_from": "sdk",
    }
    assert lease_options_of(spec({"region": "us-east-1"}), "t").body()["region"] == "us-east-1"


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            {"fleet": {"ttl_s": 300}},
            "fleet.ttl_s .300. must be longer than a rollout may take",
        ),
        ({"fleet": {"operation_timeout_s": 30}}, "must be smaller than call_timeout_s"),
        ({"fleet": {"base_url": "ftp://x"}}, "should match pattern"),
        ({"fleet": {"base_url": "http://user:word@127.0.0.1"}}, "should match pattern"),
        ({"fleet": {"api_key": "x"}}, "Extra inputs are not permitted"),
        ({"faults": {"call_error_rate": 0.1}}, "faults are injected into minifleet only"),
        (
            {"provider": "minifleet", "fleet": {"partial_reward": True}},
            "read by the provider fleet",
        ),
    ],
)
def test_what_would_be_read_by_nobody_or_cannot_work_is_refused(
    environment: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        RunSpec.model_validate(spec_body(environment={"provider": "fleet", **environment}))


def test_rollout_workers_share_the_bound_of_instances() -> None:
    body = spec_body(
        environment={"provider": "fleet", "fleet": {"base_url": LOCAL, "max_instances": 10}},
        placement={"type": "ray", "rollout_workers": 4},
    )
    asked = RunSpec.model_validate(body)
    providers = [
        fleet_provider(asked, "t", KEY, worker=number, num_workers=4) for number in range(4)
    ]
    bounds = [each.share("booking").environment.bound for each in providers]
    assert bounds == [3, 3, 2, 2]
    assert [each.account_limiter.bound for each in providers] == bounds


def test_shares_of_failed_tasks_that_would_pass_are_refused() -> None:
    fleet = {"base_url": LOCAL, "partial_reward": True}
    body = spec_body(environment={"provider": "fleet", "fleet": fleet})
    assert RunSpec.model_validate(body).environment.fleet.partial_reward
    with pytest.raises(ValidationError, match=r"at or above eval.pass_threshold \(0.5\) would"):
        RunSpec.model_validate(body | {"eval": {"pass_threshold": 0.5}})


@pytest.mark.parametrize("kind", ["validate", "preview"])
def test_a_run_without_rollout_workers_has_all_instances_to_itself(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_API_KEY", "k")
    body = spec_body(
        kind=kind,
        environment={"provider": "fleet", "fleet": {"base_url": LOCAL, "max_instances": 3}},
        placement={"type": "ray", "rollout_workers": 4},
    )
    provider = choose_provider(RunSpec.model_validate(body), "t")
    assert isinstance(provider, FleetProvider)
    assert provider.share("booking").environment.bound == 3


def test_more_rollout_workers_than_instances_are_refused() -> None:
    body = spec_body(
        environment={"provider": "fleet", "fleet": {"base_url": LOCAL, "max_instances": 3}},
        placement={"type": "ray", "rollout_workers": 4},
    )
    with pytest.raises(ValidationError, match=r"max_instances \(3\) is shared by the rollout"):
        RunSpec.model_validate(body)


def test_answers_are_bounded_as_the_spec_says() -> None:
    fleet = {"base_url": LOCAL, "max_message_mib": 2, "max_output_chars": 300}
    sizes = fleet_provider(spec(fleet), "t", KEY)._sizes
    assert (sizes.max_message_bytes, sizes.max_output_chars) == (2 << 20, 300)


def test_a_key_travels_over_tls_or_stays_here() -> None:
    body = {"provider": "fleet", "fleet": {"base_url": "http://fleet.example.org"}}
    asked = RunSpec.model_validate(spec_body(environment=body, experimental=True))
    operator = {"FLEET_BASE_URL": "http://fleet.example.org", **KEY}
    with pytest.raises(SpecError, match="the key travels over https only"):
        account_of(asked, operator)


@pytest.mark.parametrize("key", ["two\nlines", "caf\u00e9"])
def test_a_key_that_no_header_carries_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(SpecError, match="set FLEET_API_KEY to the key alone") as caught:
        account_of(spec({"base_url": LOCAL}), {"FLEET_API_KEY": key})
    assert key not in str(caught.value)


def test_the_spec_chooses_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_API_KEY", "k")
    chosen = choose_provider(spec({"base_url": LOCAL}), "t")
    assert isinstance(chosen, FleetProvider)
    assert chosen.env_keys == ("booking",)
