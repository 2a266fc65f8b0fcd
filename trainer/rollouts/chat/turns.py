"""Turn markers of model families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMarks:
    """The turn markers of a model family: single tokens, placed by id between texts."""

    starts: Mapping[str, str]
    """The marker before the role's name, by role."""
    middle: str | None
    """The marker between the role's name and the content; None: a newline, which is text."""
    end: str
    between: str
    """Text between the end of a message and the next one."""
    before: str = ""
    """Text before the content, after the middle marker."""
    first: str | None = None
    """The marker at the beginning of a conversation."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Every marker, once."""
        optional = (each for each in (self.middle, self.first) if each is not None)
        return tuple(dict.fromkeys((*self.starts.values(), *optional, self.end)))

    def opening(self, role: str) -> str:
        """Text that opens a role's turn."""
        return f"{self.starts[role]}{role}{self.middle or NEWLINE}{self.before}"


NEWLINE = "\n"
CHATML = TurnMarks(
    starts=MappingProxyType(dict.fromkeys(ROLES, "<|im_start|>")),
    middle=None,
    end="<|im_end|>",
    between=NEWLINE,
)
"""Qwen's, and that of our tiny models."""
KIMI = TurnMarks(
    starts=MappingProxyType({role: f"<|im_{role}|>" for role in ROLES}),
    middle="<|im_middle|>",
    end="<|im_end|>",
    between="",
)
"""Kimi K2's, as `chat_template.jinja` of moonshotai/Kimi-K2-Instruct has it."""
LLAMA = TurnMarks(
    starts=MappingProxyType(dict.fromkeys(ROLES, "<|start_header_id|>")),
    middle="<|end_header_id|>",
    end="<|eot_id|>",
    between="",
    before="\n\n",
    first="<|begin_of_text|>",
)
"""Llama 3's, as Meta's model cards have it."""
FAMILIES = (CHATML, KIMI, LLAMA)
