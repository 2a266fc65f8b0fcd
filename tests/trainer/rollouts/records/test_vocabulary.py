"""The texts of tokens: bytes that are no text of their own stay bytes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.trainer.fixtures.scripted import byte_tokenizer
from trainer.rollouts.chat.tokenizer import token_bytes
from trainer.rollouts.records.vocabulary import write_vocabulary


def entries(path: Path, tokenizer: Tokenizer) -> list[Any]:
    write_vocabulary(path / "folder" / "file", tokenizer)
    read: list[Any] = json.loads(gzip.decompress((path / "folder" / "file").read_bytes()))
    return read


def test_every_id_has_a_text_or_bytes(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    stored = entries(tmp_path, tokenizer)
    assert len(stored) == tokenizer.get_vocab_size(with_added_tokens=True)
    ids = tokenizer.encode("é a\n<done>", add_special_tokens=False).ids
    assert [stored[i] for i in ids] == [[0xC3], [0xA9], " ", "a", "\n", "<done>"]
    assert stored[tokenizer.token_to_id("<|im_start|>")] == "<|im_start|>"


def test_the_bytes_of_a_text_are_its_tokens_bytes() -> None:
    tokenizer, text = byte_tokenizer(), "naïve 🤖 \x00\t<done>"
    pieces = token_bytes(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert b"".join(pieces[i] for i in ids).decode() == text


def test_a_token_of_several_letters_may_end_within_a_character() -> None:
    """ " é" in three bytes, of which a merge takes two: "Ġ" is a space, "Ã" the byte C3."""
    vocab = {"Ġ": 0, "Ã": 1, "©": 2, "ĠÃ": 3}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("Ġ", "Ã")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    ids = tokenizer.encode(" é").ids
    assert [token_bytes(tokenizer)[i] for i in ids] == [b" \xc3", b"\xa9"]


def test_a_vocabulary_of_words_is_read_as_the_tokenizer_decodes_it(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"ab": 0, "é": 1, "[UNK]": 2}, unk_token="[UNK]"))
    assert entries(tmp_path, tokenizer) == ["ab", "é", "[UNK]"]
