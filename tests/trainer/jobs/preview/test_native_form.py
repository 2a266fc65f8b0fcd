"""A run whose spec says `tool_format: native`: its prompts, its rollouts and its checkpoints."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hillclimb.protocol.environments import PromptText
from hillclimb.protocol.events import PromptsRendered, StepCompleted, TrainerStarted
from hillclimb.protocol.rundir import prompts_file, run_key
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.rollouts.styles.native.models import QWEN3
from trainer.errors import SpecError
from trainer.jobs.preview.preview import build_preview
from trainer.rollouts.styles.choose import choose_chat

PROMPT = {"tool_format": "native", "thinking": False, "version": "2"}


def a_run(root: Path, template: str = QWEN3.source) -> ShortRun:
    run = ShortRun(
        root,
        prompt=PROMPT,
        rollout={"n_samples_per_prompt": 2},
        schedule={"total_steps": 1, "train_batch_size": 2, "mini_batch_size": 2},
        eval={"before_training": False, "interval": 0},
        checkpoints={"interval": 1},
    )
    (root / "model" / "chat_template.jinja").write_text(template)
    return run


async def test_a_run_trains_in_the_templates_form_and_saves_the_template(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    await run.train()
    (started,), (rendered,) = run.events(TrainerStarted), run.events(PromptsRendered)
    assert started.prompt_version == rendered.version == "native-2"
    data = gzip.decompress(run.store.get(run_key(run.run_id, prompts_file(1))))
    for text in map(PromptText.model_validate_json, data.splitlines()):
        assert "<tools>\n" in text.text
        assert text.text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
        assert text.tools_tokens > 0
    (step,) = run.events(StepCompleted)
    assert [row.status for row in step.outcomes] == ["graded"] * 4
    saved = choose_chat(run.spec.prompt, run.policy(1), None)
    assert saved.lists_tools


async def test_a_preview_refuses_a_template_that_cannot_be_followed(tmp_path: Path) -> None:
    run = a_run(tmp_path, QWEN3.source.replace("if tools", "if nothing"))
    run.spec = run.spec.model_copy(update={"kind": "preview"})
    with pytest.raises(SpecError, match="no place for tools"):
        await run.finish(build_preview(run.begin(), None))
