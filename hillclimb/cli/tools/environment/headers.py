"""Headers of `env check`: their values travel in the environment, never on a command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from hillclimb.spec.hosts import FOR_RUNS


def read_headers(
    written: Sequence[str], named: Sequence[str], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield headers with their values: `NAME:VALUE` as written, `NAME:VARIABLE` from `environ`.

    Raises:
        click.BadParameter: a header cannot be read or sent; the message does not repeat a value.
    """
    for text in written:
        name, value = _split(text, "--header NAME:VALUE")
        yield name, _checked(value, f"--header {name}")
    for text in named:
        name, variable = _split(text, "--header-from NAME:VARIABLE")
        if variable not in environ:
            raise click.BadParameter(f"--header-from {name}: the variable {variable} is not set")
        yield name, _checked(environ[variable], f"--header-from {name}: {variable}")


def hand_over(headers: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the words and the variables with which the data plane gets the headers."""
    variables = {f"{FOR_RUNS}CHECK_{number}": name for number, name in enumerate(headers)}
    words = [f"--header-from={name}:{variable}" for variable, name in variables.items()]
    return words, {variable: headers[name] for variable, name in variables.items()}


def _split(text: str, form: str) -> tuple[str, str]:
    name, colon, rest = text.partition(":")
    if not (colon and name.strip() and rest.strip()):
        # Without a colon the whole text may be a secret: it is not repeated.
        raise click.BadParameter(f"write {form}, such as Authorization:…")
    return name.strip(), rest.strip()


def _checked(value: str, where: str) -> str:
    value = value.strip()
    if not value:
        raise click.BadParameter(f"{where} is empty")
    if not (value.isascii() and value.isprintable()):
        raise click.BadParameter(
            f"{where} holds what no header can carry: a line break, or a character outside of ASCII"
        )
    return value
