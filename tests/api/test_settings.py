"""What the environment says, and what it leaves out."""

import pytest
from pydantic import ValidationError

from api.settings import Settings
from hillclimb.process.launcher import WITHHELD_VARIABLES

REQUIRED = {
    "DATABASE_URL": "postgresql+psycopg://x",
    "REDIS_URL": "redis://x",
    "HILLCLIMB_BLOBS_URL": "/blobs",
    "HILLCLIMB_SECRET_KEY": "s",
}
OPTIONAL = ("SLACK_BOT_TOKEN", "SLACK_API_BASE_URL", "HILLCLIMB_BOOTSTRAP_KEY")


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in [*REQUIRED.items(), *((name, "") for name in OPTIONAL)]:
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.slack_api_base_url == "https://slack.com/api"
    assert settings.slack_bot_token is None
    assert settings.bootstrap_key is None


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in REQUIRED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABASE_URL", "")
    with pytest.raises(ValidationError, match="DATABASE_URL"):
        Settings()


def test_links_for_people_may_have_an_address_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in REQUIRED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HILLCLIMB_API_URL", "http://api:8710/")
    assert Settings().link_base == "http://api:8710"
    monkeypatch.setenv("HILLCLIMB_LINK_URL", "https://train.example/")
    assert Settings().link_base == "https://train.example"
    assert Settings().public_url == "http://api:8710/"


@pytest.mark.parametrize(
    ("name", "value"),
    [("HILLCLIMB_SLACK_CHANNEL", "#runs"), ("SLACK_APP_TOKEN", "xapp-1")],
)
def test_what_needs_the_bot_says_so_without_its_token(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    for each, given in [*REQUIRED.items(), (name, value)]:
        monkeypatch.setenv(each, given)
    with pytest.raises(ValidationError, match=f"{name} needs SLACK_BOT_TOKEN"):
        Settings()
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    monkeypatch.setenv("HILLCLIMB_SLACK_CHANNEL", "#a channel")
    with pytest.raises(ValidationError, match="HILLCLIMB_SLACK_CHANNEL"):
        Settings()


def test_no_trainer_gets_a_secret_of_the_service() -> None:
    secrets = {
        field.alias for field in Settings.model_fields.values() if "Secret" in str(field.annotation)
    }
    assert len(secrets) >= 8
    assert secrets <= WITHHELD_VARIABLES
