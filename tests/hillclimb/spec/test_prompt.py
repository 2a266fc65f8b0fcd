"""The section `prompt`: which keys belong to which style."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.environment.prompt import PromptSpec


@pytest.mark.parametrize("key", [{"version": "2"}, {"tool_format": "native"}])
def test_order_and_form_belong_to_our_style(key: dict[str, str]) -> None:
    assert PromptSpec.model_validate(key).style == "hillclimb"
    with pytest.raises(ValidationError, match="is read only where style is"):
        PromptSpec.model_validate({"style": "skyrl", **key})


def test_every_style_can_switch_thinking() -> None:
    for style in ("hillclimb", "skyrl"):
        spec = PromptSpec.model_validate({"style": style, "thinking": False})
        assert spec.thinking is False
    assert PromptSpec().thinking is None


@pytest.mark.parametrize("value", ["off", 0, 1])
def test_thinking_is_true_or_false(value: Any) -> None:
    with pytest.raises(ValidationError, match="true or false"):
        PromptSpec.model_validate({"thinking": value})
