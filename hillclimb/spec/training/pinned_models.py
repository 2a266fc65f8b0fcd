"""Commits for models of the Hugging Face hub that a spec may name plainly: `Qwen/Qwen3-8B`."""

from __future__ import annotations

import re
from collections.abc import Mapping

PINNED_MODELS: Mapping[str, str] = {
    "Qwen/Qwen3-8B": "b968826d9c46dd6066d109eabc6255188de91218",
    "Qwen/Qwen3-32B": "9216db5781bf21249d130ec9da846c4624c16137",
}
"""Commit by name. A stored spec always has the commit, so a later change of this table changes no
run that was submitted before."""

_PLAIN = re.compile(r"(?:hf:)?([A-Za-z0-9][\w-]*(?:\.[\w-]+)*/[\w.-]+)")


def pin(source: str) -> str:
    """Return `hf:ORG/NAME@COMMIT` for the plain name of a listed model, else the source itself."""
    match = _PLAIN.fullmatch(source)
    commit = PINNED_MODELS.get(match[1]) if match else None
    return source if match is None or commit is None else f"hf:{match[1]}@{commit}"


def refuse_plain_name(source: str) -> None:
    """Refuse the name of a hub's model without a commit; a path starts with `/` or `.`.

    Raises:
        ValueError: a sentence with the form that is accepted, and the models with known commits.
    """
    match = _PLAIN.fullmatch(source)
    if match is not None:
        raise ValueError(
            f"{source!r} does not pin a revision: write hf:{match[1]}@REVISION with the full commit"
            " hash (40 hexadecimal digits). A plain name is accepted for "
            + " and ".join(PINNED_MODELS)
            + "; a directory is written with its whole path"
        )
