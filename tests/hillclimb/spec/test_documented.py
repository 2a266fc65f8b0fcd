from __future__ import annotations

import subprocess
import sys

from pydantic import ConfigDict, Field

from hillclimb.spec.documented import Documented, field_docstrings


class Inner(Documented):
    size: int = 1
    """Size in bytes."""


class Base(Documented):
    name: str
    """The name,
    over two lines."""
    silent: int = 0


class Example(Base):
    model_config = ConfigDict(populate_by_name=True)

    inner: Inner = Inner()
    """The inner part."""
    short: int = Field(default=0, alias="s")
    """By its alias."""
    written: int = Field(default=0, description="Written down.")
    """Not this one."""
    name: str = "other"
    """The name again."""


def test_fields_are_described_by_their_docstrings_wherever_they_come_from() -> None:
    properties = Example.model_json_schema(by_alias=True)["properties"]
    assert {name: each.get("description") for name, each in properties.items()} == {
        "name": "The name again.",
        "silent": None,
        "inner": "The inner part.",
        "s": "By its alias.",
        "written": "Written down.",
    }
    assert Example.model_json_schema()["$defs"]["Inner"]["properties"]["size"] == {
        "default": 1,
        "description": "Size in bytes.",
        "title": "Size",
        "type": "integer",
    }
    assert field_docstrings(Base) == {"name": "The name,\nover two lines."}


def test_no_source_is_read_until_a_schema_is_made() -> None:
    program = (
        "import inspect\n"
        "inspect.getsource = inspect.getsourcelines = None\n"
        "from hillclimb.spec.run import RunSpec\n"
        "from hillclimb.client.client import Client\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
