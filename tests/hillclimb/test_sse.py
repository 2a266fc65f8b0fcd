"""Reading server-sent events."""

from hillclimb.sse import ServerEvent, parse_stream


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
