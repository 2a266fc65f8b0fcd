"""`nan` and `inf` are refused where the command line takes a number: JSON has neither."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from hillclimb.cli.commands import complete
from hillclimb.cli.terminal.exits import Exit


def options_of(group: click.Command) -> Iterator[click.Parameter]:
    yield from group.params
    for each in group.commands.values() if isinstance(group, click.Group) else ():
        yield from options_of(each)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "command", [["budget", "run_x", "--add-usd"], ["limits", "--usd"], ["limits", "--hours"]]
)
def test_no_sum_is_endless(command: list[str], value: str) -> None:
    result = CliRunner(mix_stderr=False).invoke(complete(), [*command, value])
    assert result.exit_code == Exit.USAGE
    assert "Invalid value" in result.stderr


def test_every_number_of_the_command_line_is_finite() -> None:
    numbers = [each for each in options_of(complete()) if each.type.name.startswith("float")]
    assert len(numbers) > 5
    for each in numbers:
        with pytest.raises(click.BadParameter):
            each.type.convert("nan", each, None)
