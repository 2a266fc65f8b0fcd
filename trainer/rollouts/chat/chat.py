"""Token-in, token-out chat: only new environment text is ever tokenised.

A conversation is one growing list of ids. Sampled ids are kept as they were drawn, so the tokens
trained on are the tokens sampled; text is decoded from them for parsing and for people, and is
never encoded back. Special markers are placed by id, and text is encoded with special markers
switched off, so an environment that answers `<|im_end|>` cannot close its own message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from hillclimb.environment.base import ToolCall, ToolSpec
from hillclimb.environment.task import Task
from trainer.errors import SpecError
from trainer.rollouts.chat.prompts import render_call, render_observation
from trainer.rollouts.chat.template import read_generation_prompt
from trainer.rollouts.chat.tokenizer import load_tokenizer, read_end_ids
from trainer.rollouts.chat.turns import CHATML, FAMILIES, NEWLINE, TurnMarks
from trainer.rollouts.chat.wording import OWN_WORDING, Wording

END_OF_TURN = CHATML.end
CallForm = Literal["tagged", "bare", "xml"]
"""Calls as JSON between `<tool_call>` tags, one call that is the whole turn (Llama 3), or between
these tags a function with a tag for each argument (Qwen3.5)."""


class Chat:
    """Encodes and decodes the chat format of a model family: ChatML (Qwen), Kimi's or Llama 3's.

    For text without special markers the ids equal those of the rendered `chat_template.jinja` of
    our tiny models. `Chat` deviates from the templates of Qwen3 and Kimi in one place: answers of
    tools are user messages here, before which those templates remove earlier thoughts; that would
    train tokens in a context they were not sampled in. `NativeChat` has the form of the model's own
    template, which keeps them.
    """

    call_form: CallForm = "tagged"
    """How the model was taught to write calls."""
    lists_tools: bool = False
    """The format itself lists the tools; else the text of the system message has them."""

    def __init__(
        self, tokenizer: Tokenizer, generation_prompt: str = "", end_ids: Sequence[int] = ()
    ) -> None:
        """Wrap a tokenizer, which is switched to encoding special markers in text as plain text.

        `generation_prompt` is the text that the model's own template writes before a response; its
        part after the opening of a turn (such as `<think>`) begins every turn. `end_ids` are the
        tokens at which the model stops besides the family's marker.

        Raises:
            ValueError: the tokenizer has the markers of no supported family.
        """
        self._marks = marks_of(tokenizer)
        opening = self._marks.opening("assistant")
        prefill = generation_prompt.removeprefix(opening)
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = False
        self.prefill: str = "" if prefill == generation_prompt else prefill
        prefill_ids = self._encode(self.prefill)
        tokenizer.encode_special_tokens = True
        self._ids = {marker: self.token_id(marker) for marker in self._marks.markers}
        self.end_of_turn_id: int = self._ids[self._marks.end]
        self._stops = dict.fromkeys((self.end_of_turn_id, *end_ids))
        self._between = self._encode(self._marks.between)
        self.open_turn_ids: tuple[int, ...] = (*self._begun("assistant", ""), *prefill_ids)

    @classmethod
    def from_directory(cls, directory: Path, *, thinking: bool | None = None) -> Chat:
        """Load the tokenizer and the template of a model directory in Hugging Face form.

        `thinking` switches the template's generation prompt; None leaves it at its default.

        Raises:
            ModelUnavailable: there is no tokenizer.
            ValueError: as `Chat`, or `thinking` cannot be switched.
        """
        generation_prompt = read_generation_prompt(directory, thinking=thinking)
        return cls(load_tokenizer(directory), generation_prompt, read_end_ids(directory))

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a turn: the family's own marker, then those of the model's files.

        Base models end at `<|endoftext|>`, and chat models may: what follows is another document.
        """
        return tuple(self._stops)

    @property
    def end_of_turn(self) -> str:
        """The marker that ends a turn."""
        return self._marks.end

    @property
    def opening_of_turn(self) -> str:
        """The text before a turn's first word, without a prefilled thought."""
        return self._marks.opening("assistant")

    @property
    def vocab_size(self) -> int:
        """Number of ids, added markers included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def vocabulary(self) -> list[str]:
        """The text of every id, in order of the ids."""
        return [
            self._tokenizer.decode([i], skip_special_tokens=False) for i in range(self.vocab_size)
        ]

    def stop_ids(self, text: str | None) -> tuple[int, ...]:
        """Tokens that end a turn, with that of `text` where it is a single token."""
        index = None if text is None else self._tokenizer.token_to_id(text)
        return self.stop_token_ids if index is None else (*self.stop_token_ids, index)

    def token_id(self, token: str) -> int:
        """The id of a token by its exact text.

        Raises:
            KeyError: there is no such token.
        """
        index = self._tokenizer.token_to_id(token)
        if index is None:
            raise KeyError(token)
        return index

    def encode_prompt(
        self, task: Task, tools: Sequence[ToolSpec], wording: Wording = OWN_WORDING
    ) -> tuple[int, ...]:
        """System message, the task as the first user message, and the open assistant turn."""
        system = wording.compose_system(task, wording.render_tools(tools))
        return self.encode_opening(system, wording.compose_first(task), tools)

    def encode_opening(
        self,
        system: str,
        prompt: str,
        tools: Sequence[ToolSpec] = (),
    ) -> tuple[int, ...]:
        """A system message, the first user message, and the open assistant turn.

        `tools` are read by formats that list them outside of the system message's text.
        """
        first = self._marks.first
        return (
            *(() if first is None else (self._ids[first],)),
            *self.encode_message("system", system),
            *self.encode_message("user", prompt),
            *self.open_turn_ids,
        )

    def num_tokens(self, text: str) -> int:
        """Number of tokens of a text on its own."""
        return len(self._encode(text))

    def cuts_between(self, before: str, after: str) -> bool:
        """Tell whether a token boundary lies between two texts, whatever follows the second.

        A tokenizer first cuts text into pieces, which no token spans. The start of a piece depends
        on the text before it and on a few characters after it.
        """
        cutter, normalizer = self._tokenizer.pre_tokenizer, self._tokenizer.normalizer
        text = before + after
        if normalizer is not None:
            text = normalizer.normalize_str(text)
        if cutter is None or not text.endswith(after):
            return False
        border = len(text) - len(after)
        return any(start == border for _, (start, _) in cutter.pre_tokenize_str(text))

    def encode_observation(
        self, text: str, *, is_error: bool, turn_closed: bool = True
    ) -> tuple[int, ...]:
        """Return the tokens after a turn: its end, the observation as a user message, an open turn.

        With `turn_closed=False` (the sample hit its token limit, `Sample.stopped` is False) the
        missing end marker comes first. The policy drew none of these tokens, that marker included,
        so none belongs in the action mask.
        """
        message = render_observation(text, is_error=is_error)
        return self.encode_reply(message, turn_closed=turn_closed)

    def encode_reply(self, message: str, *, turn_closed: bool = True) -> tuple[int, ...]:
        """Return the tokens after a turn, as `encode_observation`, with the message as it is."""
        return (
            *(() if turn_closed else (self.end_of_turn_id,)),
            *self._between,
            *self.encode_message("user", message),
            *self.open_turn_ids,
        )

    def encode_results(
        self, messages: Sequence[str], *, turn_closed: bool = True
    ) -> tuple[int, ...]:
        """Return the tokens after a turn, with what the prompt style answers to it."""
        return self.encode_reply("\n".join(messages), turn_closed=turn_closed)

    def turn_text(self, content: str, calls: Sequence[ToolCall]) -> str:
        """Return a turn as text, calls after its words; for demonstrations only.

        Raises:
            ValueError: the format has no such turn.
        """
        rendered = (render_call(call.name, call.arguments) for call in calls)
        return "\n".join([*([content] if content else []), *rendered])

    def encode_turn(self, text: str) -> tuple[int, ...]:
        """Encode a closed assistant turn; for demonstrations only, never for samples."""
        return (*self._encode(text), self.end_of_turn_id)

    def decode(self, token_ids: Iterable[int]) -> str:
        """Return the text of sampled ids without their end; other markers stay visible."""
        ids = list(token_ids)
        while ids and ids[-1] in self._stops:
            ids.pop()
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def encode_message(self, role: str, content: str) -> tuple[int, ...]:
        """Encode a complete message of another role, with the text between messages."""
        return (*self._begun(role, content), self.end_of_turn_id, *self._between)

    def _begun(self, role: str, content: str) -> tuple[int, ...]:
        """Encode a message without its end marker."""
        start, middle = self._ids[self._marks.starts[role]], self._marks.middle
        if middle is None:
            return (start, *self._encode(f"{role}{NEWLINE}{content}"))
        text = self._marks.before + content
        return (start, *self._encode(role), self._ids[middle], *self._encode(text))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)


def marks_of(tokenizer: Tokenizer) -> TurnMarks:
    """Return the turn markers of a tokenizer's model family, found by its special tokens.

    Raises:
        ValueError: it has the markers of no supported family.
    """
    for marks in FAMILIES:
        if all(tokenizer.token_to_id(marker) is not None for marker in marks.markers):
            return marks
    known = " nor of ".join(", ".join(marks.markers) for marks in FAMILIES)
    raise ValueError(f"the tokenizer lacks some of {known}")


def load_chat(
    model_dir: Path,
    vocab_size: int | None,
    load: Callable[[Path], Chat] = Chat.from_directory,
) -> Chat:
    """Load the chat of a model with `vocab_size` embeddings; None does not compare.

    Raises:
        ModelUnavailable: there is no tokenizer.
        SpecError: its model family is unknown, or it does not belong to the model.
    """
    try:
        chat = load(model_dir)
    except ValueError as fault:
        raise SpecError(f"the model in {model_dir} cannot chat: {fault}") from fault
    if vocab_size is not None and chat.vocab_size > vocab_size:
        raise SpecError(
            f"the tokenizer in {model_dir} has {chat.vocab_size} tokens, the model {vocab_size}:"
            " they do not belong together"
        )
    return chat
