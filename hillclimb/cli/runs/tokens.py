"""`trajectories --tokens`: the tokens of one rollout."""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.cli.terminal.console import print_json, print_table, print_text, table
from hillclimb.client.client import Client
from hillclimb.protocol.payloads.results.rollouts import TokenPage, TokenPayload

NUM_PER_PAGE = 2000


def print_tokens(
    client: Client, run_id: str, rollout_id: str, turn: int | None, *, as_json: bool
) -> None:
    """Print the largest gaps and a line per turn; for one turn, each of its tokens.

    As JSON it is the page of all tokens, or of those of the turn.
    """
    if turn is None and not as_json:
        _print_summary(client.tokens(run_id, rollout_id, limit=1))
        return
    pages = list(_pages(client, run_id, rollout_id, turn))
    tokens = [token for page in pages for token in page.data]
    if as_json:
        print_json(pages[-1].model_copy(update={"data": tokens}))
        return
    print_text(pages[0].learner.sentence)
    print_table(table(_TOKEN_COLUMNS, [_token_row(token) for token in tokens]))


def _pages(client: Client, run_id: str, rollout_id: str, turn: int | None) -> Iterator[TokenPage]:
    start: int | None = 0
    while start is not None:
        page = client.tokens(run_id, rollout_id, turn=turn, start=start, limit=NUM_PER_PAGE)
        yield page
        start = page.next_start


def _print_summary(page: TokenPage) -> None:
    print_text(page.learner.sentence)
    if page.largest_gaps:
        print_table(table(["turn>", *_TOKEN_COLUMNS], [_row(token) for token in page.largest_gaps]))
    rows = [
        (
            turn.turn or "prompt",
            turn.num_tokens,
            turn.num_drawn,
            _number(turn.mean_abs_gap),
            _number(turn.max_abs_gap),
            _number(turn.mean_entropy),
            ", ".join(map(str, turn.weight_versions)),
        )
        for turn in page.turns
    ]
    columns = ["turn", "tokens>", "drawn>", "mean gap>", "max gap>", "entropy>", "version>"]
    print_table(table(columns, rows))


_TOKEN_COLUMNS = ["position>", "token~", "engine>", "learner>", "gap>", "entropy>", "version>"]


def _row(token: TokenPayload) -> tuple[object, ...]:
    return (token.turn, *_token_row(token))


def _token_row(token: TokenPayload) -> tuple[object, ...]:
    return (
        token.position,
        _text(token),
        _number(token.engine_logprob),
        _number(token.learner_logprob),
        _number(token.gap),
        _number(token.entropy),
        "-" if token.weight_version is None else token.weight_version,
    )


def _text(token: TokenPayload) -> str:
    """Return a token as a terminal may print it: no control character reaches it."""
    if token.text is not None:
        return repr(token.text)
    return f"id {token.token_id}" if token.bytes_hex is None else f"bytes {token.bytes_hex}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value + 0.0:.3g}"
