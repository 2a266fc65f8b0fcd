"""Reading server-sent events."""

from hillclimb.client.stream.sse import ServerEvent, lines_of, parse_stream


def test_frames_comments_and_retry_lines_are_told_apart() -> None:
    lines = [
        "retry: 2000",
        "",
        ": ping",
        "",
        "id: 7",
        "event: step.completed",
        'data: {"a":',
        "data: 1}",
        "",
        "event: end",
        "data: {}",
        "",
        "event: cut",
        "data: {",
    ]
    assert list(parse_stream(lines)) == [
        ServerEvent(name="step.completed", id=7, data={"a": 1}),
        ServerEvent(name="end", id=7, data={}),
    ]


def test_only_line_feeds_end_a_line_wherever_the_stream_was_cut() -> None:
    text = 'id: 1\r\ndata: {"said":"a\u2028b\x85c"}\n\ndata: 2'
    whole = ["id: 1", 'data: {"said":"a\u2028b\x85c"}', "", "data: 2"]
    assert list(lines_of(text)) == whole
    assert list(lines_of([text])) == whole
