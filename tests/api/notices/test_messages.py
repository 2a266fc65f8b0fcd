"""Message bodies."""

from __future__ import annotations

import json

from api.notices.messages import AtN, RateLine, Remains, RunFacts, ended, evaluated, started

RUN = RunFacts(
    run_id="run_1", name="a <b> & c", url="http://127.0.0.1:8000/runs/run_1", total_steps=40
)


def line(label: str, rate: float | None = 0.625, **more: object) -> RateLine:
    facts = {"label": label, "n": 48, "rate": rate, "low": 0.48, "high": 0.75, **more}
    return RateLine(**facts)  # type: ignore[arg-type]


def test_an_eval_message_shows_every_environment_with_n_and_interval() -> None:
    message = evaluated(RUN, step=10, decoding="greedy", lines=[line("booking"), line("all", 0.5)])
    table = message.blocks[1]["text"]["text"]
    assert "booking" in table
    assert "62.5 %" in table
    assert "[48.0 %, 75.0 %]" in table
    assert "n=48" in table
    assert message.text == "a <b> & c: eval at step 10 of 40, greedy: 50.0 %"


def test_the_end_message_shows_before_after_and_verdict_per_decoding() -> None:
    lines = [line("booking", before=0.1, verdict="IMPROVED"), line("all", before=0.2)]
    message = ended(
        RUN,
        status="succeeded",
        reason="completed",
        detail="",
        tables={"sampled": lines, "greedy": lines},
    )
    text = json.dumps(message.blocks, ensure_ascii=False)
    assert "10.0 % →" in text.replace("  ", " ").replace("  ", " ")
    assert "IMPROVED" in text
    assert "`sampled`" in text
    assert "`greedy`" in text
    assert message.text == "Run a <b> & c succeeded: completed"


def test_names_cannot_carry_slack_markup() -> None:
    message = ended(RUN, status="failed", reason="internal", detail="<!channel> boom", tables={})
    text = json.dumps(message.blocks, ensure_ascii=False)
    assert "a &lt;b&gt; &amp; c" in text
    assert "&lt;!channel&gt; boom" in text
    assert "<!channel>" not in text


def test_a_missing_rate_is_a_dash_and_not_a_zero() -> None:
    message = evaluated(RUN, step=0, decoding="sampled", lines=[line("booking", None)])
    assert "0.0 %" not in message.blocks[1]["text"]["text"].replace("[48.0 %, 75.0 %]", "")
    assert "–" in message.blocks[1]["text"]["text"]


def test_a_long_table_keeps_the_overall_line_and_says_what_it_left_out() -> None:
    lines = [*(line(f"env-{i:02d}") for i in range(64)), line("all")]
    table = evaluated(RUN, step=0, decoding="sampled", lines=lines).blocks[1]["text"]["text"]
    assert len(table) <= 3000
    assert "… and 45 more environments" in table
    assert "\nall " in table


def test_the_first_message_names_model_and_environments() -> None:
    facts = (("Model", "builtin:tiny"), ("Environments", "booking, github"))
    message = started(RUN, configuration=facts, engine="torch")
    text = json.dumps(message.blocks)
    assert "builtin:tiny" in text
    assert "booking, github" in text
    assert "<http://127.0.0.1:8000/runs/run_1|run_1>" in text


def test_pass_at_3_stands_beside_pass_at_1_and_breakdowns_below() -> None:
    at_3 = AtN(n=3, rate=0.8, low=0.7, high=0.9)
    message = evaluated(
        RUN,
        step=10,
        decoding="sampled",
        lines=[line("booking", at_n=at_3), line("all", 0.5, at_n=at_3)],
        breakdowns={"difficulty": [line("1", at_n=at_3), line("unknown")]},
    )
    assert message.text.endswith("sampled: 50.0 % (pass@3 80.0 %)")
    table, by_difficulty = (message.blocks[i]["text"]["text"] for i in (1, 2))
    assert "n=48  pass@3 80.0 % [70.0 %, 90.0 %]" in table
    assert by_difficulty.startswith("by difficulty\n```")
    assert "unknown" in by_difficulty


def test_a_wide_table_is_cut_at_rows_and_never_inside_its_code_block() -> None:
    at_3 = AtN(n=3, rate=0.8, low=0.7, high=0.9, before=0.1)
    name = "environment-with-a-long-name-and-a-suffix"
    lines = [*(line(f"{name}-{i:02d}", at_n=at_3, before=0.5) for i in range(30)), line("all")]
    table = evaluated(RUN, step=0, decoding="sampled", lines=lines).blocks[1]["text"]["text"]
    assert len(table) <= 3000
    assert table.endswith("```")
    assert "more environments" in table


def test_a_change_has_its_points_and_n_is_of_tasks() -> None:
    lines = [line("booking", 0.6, before=0.2), line("github", None, before=0.5), line("all", 0.5)]
    table = evaluated(RUN, step=10, decoding="sampled", lines=lines).blocks[1]["text"]["text"]
    booking, github, overall = table.splitlines()[1:4]
    assert "20.0 % →  60.0 %  +40.0  [48.0 %, 75.0 %]" in booking
    assert booking.endswith("n=48")
    assert "50.0 % →       –      –" in github
    assert "→" not in overall


def test_a_run_that_learned_nothing_does_not_end_green() -> None:
    remains = Remains(conclusion="nothing was learned: no step had a gradient", has_learned=False)
    facts = {"reason": "completed", "detail": "", "tables": {}, "remains": remains}
    text = json.dumps(ended(RUN, status="succeeded", **facts).blocks)  # type: ignore[arg-type]
    assert ":warning:" in text
    assert ":white_check_mark:" not in text
    assert "nothing was learned: no step had a gradient" in text


def test_a_failure_without_lines_has_the_link_of_the_log_all_the_same() -> None:
    message = ended(RUN, status="failed", reason="node_unfit", detail="", tables={})
    assert f"<{RUN.url}/log|The log>" in json.dumps(message.blocks)
    fine = ended(RUN, status="cancelled", reason="cancelled_by_user", detail="", tables={})
    assert "/log|" not in json.dumps(fine.blocks)
