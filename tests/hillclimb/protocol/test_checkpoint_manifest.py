"""One hash of a spec, on whichever side of the service it is computed."""

from __future__ import annotations

from hillclimb.protocol.checkpoint_manifest import config_hash
from hillclimb.spec.run import RunSpec


def a_spec(**sections: object) -> RunSpec:
    return RunSpec.model_validate({"name": "x", "data": {"env_keys": ["booking"]}, **sections})


def test_what_is_stored_and_sent_hashes_like_what_was_posted() -> None:
    """The trainer reads the spec back from JSON; a path may hold any character."""
    spec = a_spec(model={"source": "/models/\u017elu\u0165"}, optimizer={"lr": 1})
    again = RunSpec.model_validate_json(spec.model_dump_json())
    stored = RunSpec.model_validate(spec.model_dump(mode="json"))
    assert config_hash(spec) == config_hash(again) == config_hash(stored)


def test_a_default_written_out_changes_nothing_and_any_other_value_does() -> None:
    assert config_hash(a_spec(schedule={"seed": 0})) == config_hash(a_spec())
    assert config_hash(a_spec(schedule={"seed": 1})) != config_hash(a_spec())
