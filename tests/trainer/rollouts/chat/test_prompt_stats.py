"""What agents read first: counted as it is sent, hashed so that any change shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product, takewhile
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.trainer.fixtures.scripted import byte_tokenizer
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.prompt_stats import CountOptions, PromptStats, compute_prompt_stats
from trainer.rollouts.chat.wording import OwnWording

SHARED_FIRST = OwnWording(shared_first=True)
MODEL = Path(__file__).parents[4] / "assets" / "tiny-qwen3-a"
TASKS = minifleet_tasks(("booking",), "train", {"booking": 12}, 0)
TOOLS = tuple(tool.spec for tool in APPS["booking"].tools)


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat.from_directory(MODEL)


def of(chat: Chat, tasks: object = TASKS, tools: object = TOOLS, **more: object) -> PromptStats:
    return compute_prompt_stats(tasks, tools, chat, **{"limit": 880, **more})  # type: ignore[arg-type]


def test_tokens_are_those_that_are_sent(chat: Chat) -> None:
    found = of(chat)
    lengths = sorted(len(chat.encode_prompt(task, TOOLS)) for task in TASKS)
    total = found.prompts.total_tokens
    assert (total.min, total.max) == (lengths[0], lengths[-1])
    assert total.median == (lengths[5] + lengths[6]) / 2
    assert (found.prompts.num_tasks, found.prompts.num_counted) == (12, 12)
    assert found.prompts.num_tools == len(TOOLS)
    (text,) = found.texts
    assert text.task_key == found.prompts.longest_task
    assert text.total_tokens == lengths[-1]
    # What is left are the markers, the names of the roles and line breaks between the parts.
    parts = text.system_tokens + text.tools_tokens + text.task_tokens
    assert 0 < text.total_tokens - parts < 25


ODD_VALUES = (
    *("2026-01-05", "Ada", "", " ", "a ", "a\n", "\n\n", "a\r\n ", "\t", "...", "!\n!", "7", "²"),
    *("e\u0301", "\u0301", "\U0001f44d", "\u200d", "<think>", "<|im_end|>", "<done>", "日本\u3000"),
    *("it's", "x" * 300, "'", "\\", "Tools:", "\nTools:\n", "\u00a0", "\ufeff", "'S", "a_b", "{}"),
)


QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def qwen_tokenizer() -> Tokenizer:
    """Qwen's own way of cutting text, over bytes; one token would reach over a line's end."""
    made = byte_tokenizer()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: index for index, character in enumerate([*alphabet, "ĊT"])}
    made.model = models.BPE(vocab=vocab, merges=[("Ċ", "T")])
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return made


def joining_tokenizer() -> Tokenizer:
    """The same without cuts: its token does reach over the border."""
    made = qwen_tokenizer()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return made


@pytest.mark.parametrize(
    "values",
    [
        # Each value stands first once and last once, before and behind another one.
        pytest.param(tuple(pairwise((*ODD_VALUES, ODD_VALUES[0]))), id="neighbours"),
        pytest.param(tuple(product(ODD_VALUES, repeat=2)), id="all", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("tokenizer", [None, byte_tokenizer, qwen_tokenizer, joining_tokenizer])
def test_tokens_are_exact_whatever_stands_before_what_tasks_share(
    chat: Chat,
    tokenizer: Callable[[], Tokenizer] | None,
    values: Sequence[tuple[str, str]],
) -> None:
    reads = chat if tokenizer is None else Chat(tokenizer())
    odd = [replace(TASKS[0], env_variables={"A": one, "Z": two}) for one, two in values]
    assert reads.cuts_between("a\n", "Tools:") is (tokenizer is not joining_tokenizer)
    tools = TOOLS[:1]  # What matters is where they begin, and each task is encoded twice.
    for task in odd:
        found = of(reads, [task], tools)
        assert found.prompts.total_tokens.max == len(reads.encode_prompt(task, tools)), task


@pytest.mark.parametrize("tokenizer", [None, byte_tokenizer, qwen_tokenizer, joining_tokenizer])
def test_tokens_are_exact_whatever_stands_behind_what_tasks_share(
    chat: Chat, tokenizer: Callable[[], Tokenizer] | None
) -> None:
    reads = chat if tokenizer is None else Chat(tokenizer())
    counting = CountOptions(wording=SHARED_FIRST)
    odd = [{"A": one, "CURRENT_DATE": "7"} for one in ODD_VALUES]
    odd += [{one + "A": "b"} for one in ODD_VALUES] + [{}]
    for variables in odd:
        task = replace(TASKS[0], env_variables=variables)
        found = of(reads, [task], TOOLS[:1], counting=counting)
        sent = reads.encode_prompt(task, TOOLS[:1], SHARED_FIRST)
        assert found.prompts.total_tokens.max == len(sent), variables


def test_tasks_share_the_tools_of_a_prompt_that_begins_with_them(chat: Chat) -> None:
    """An engine's prefix cache ends at the first difference between two prompts."""

    def shared(wording: OwnWording) -> float:
        other = {**TASKS[0].env_variables, "CURRENT_DATE": "2031-12-24"}
        tasks = (TASKS[0], replace(TASKS[0], env_variables=other))
        one, two = (chat.encode_prompt(task, TOOLS, wording) for task in tasks)
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))
        return sum(1 for _ in alike) / len(one)

    assert shared(OwnWording()) < 0.1
    assert shared(SHARED_FIRST) > 0.5
    found = of(chat, counting=CountOptions(wording=SHARED_FIRST)).prompts
    assert found.digest != of(chat).prompts.digest


@pytest.mark.parametrize("wording", [OwnWording(), OwnWording(shared_first=True)])
@pytest.mark.parametrize("cuts", [True, False])
def test_what_tasks_share_is_encoded_once(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, wording: OwnWording, *, cuts: bool
) -> None:
    encoded: list[str] = []
    encode = Chat.encode_message

    def counted(self: Chat, role: str, content: str) -> tuple[int, ...]:
        encoded.append(content)
        return encode(self, role, content)

    monkeypatch.setattr(Chat, "encode_message", counted)
    if not cuts:
        monkeypatch.setattr(Chat, "cuts_between", lambda *_: False)
    heard: list[int] = []
    same = [replace(task, env_variables=TASKS[0].env_variables) for task in TASKS]
    counting = CountOptions(on_counted=lambda: heard.append(len(encoded)), wording=wording)
    of(chat, same, counting=counting)
    assert sum('"name":' in text for text in encoded) == 2, "to count it for all, and to show one"
    assert len(heard) == 12
    encoded.clear()
    of(chat, counting=CountOptions(wording=wording))
    own = len({tuple(task.env_variables.items()) for task in TASKS})
    assert own > 1
    assert sum('"name":' in text for text in encoded) == (2 if cuts else own + 1)


def test_a_prompt_is_shown_exactly_as_it_is_sent(chat: Chat) -> None:
    (text,) = of(chat, text_keys=[TASKS[3].key]).texts
    assert text.task_key == TASKS[3].key
    assert text.text == chat.decode(chat.encode_prompt(TASKS[3], TOOLS))
    assert text.text.startswith("<|im_start|>system\nYou are an agent working in the app booking.")
    assert text.text.endswith(f"{TASKS[3].prompt}<|im_end|>\n<|im_start|>assistant\n")


def test_prompts_beyond_the_limit_are_counted(chat: Chat) -> None:
    longest = of(chat).prompts.total_tokens.max
    assert of(chat, limit=longest).prompts.num_too_long == 0
    assert of(chat, limit=longest - 1).prompts.num_too_long >= 1
    assert of(chat, limit=10).prompts.num_too_long == 12
    assert of(chat, limit=10).texts[0].is_too_long


def test_a_few_tasks_are_counted_and_all_are_hashed(chat: Chat) -> None:
    few = of(chat, counting=CountOptions(number=3)).prompts
    assert (few.num_counted, few.num_tasks) == (3, 12)
    assert few.digest == of(chat).prompts.digest


def test_the_digest_changes_with_whatever_an_agent_reads_and_with_nothing_else(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest(tasks: object = TASKS, tools: object = TOOLS) -> str:
        return of(chat, tasks, tools).prompts.digest

    first, task = digest(), TASKS[0]
    assert digest(tuple(reversed(TASKS))) == first
    assert digest((replace(task, payload={}), *TASKS[1:])) == first
    dated = {**task.env_variables, "CURRENT_DATE": "2020-01-01"}
    changed = {
        "date": digest((replace(task, env_variables=dated), *TASKS[1:])),
        "words": digest((replace(task, prompt=task.prompt + " Please."), *TASKS[1:])),
        "tools": digest(TASKS, TOOLS[1:]),
        "tasks": digest(TASKS[1:]),
    }
    monkeypatch.setattr("trainer.rollouts.chat.prompts.PROMPT_VERSION", "next")
    changed["version"] = digest()
    assert len({first, *changed.values()}) == 6
