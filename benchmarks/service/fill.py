"""Two runs with a million outcomes between them, ingested by the service's own code.

14 environments; 300 eval tasks, three samples each and one greedy, at 20 evaluations; 512 training
rollouts at each of 931 steps, in groups of 8. A second attempt repeats ten steps. Whether a rollout
passes is drawn from its task's difficulty and the step; nothing else of its row follows from it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from api.admission.submit import submit
from api.results.derive import derive
from api.tables import Project, Run
from api.tables.database import Database
from hillclimb.protocol.events import EvalCompleted, StepCompleted
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.spec.run import RunSpec

NUM_ENVS, NUM_EVAL_TASKS, NUM_TRAIN_TASKS = 14, 300, 5_000
GROUP, GROUPS_PER_STEP = 8, 64
EVAL_EVERY, NUM_EVALS = 49, 20
TOTAL_STEPS = EVAL_EVERY * (NUM_EVALS - 1)
RESTARTED_AT, REPEATED = 500, 10
METRICS_PER_ENV = 24
ENVS = tuple(f"env{number:02}" for number in range(NUM_ENVS))
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SAMPLES = {"sampled": 3, "greedy": 1}
NAMES = (
    *(f"reward/{env}/figure_{number:02}" for env in ENVS for number in range(METRICS_PER_ENV)),
    *(f"policy/figure_{number:02}" for number in range(30)),
    "policy/ppo_clip_ratio",
    "timing/step",
)


def fill(database: Database, project_id: str) -> list[str]:
    """Submit the two runs and ingest their events, step by step in turn; return their ids."""
    rng = random.Random(20261120)
    with database.transaction() as session:
        session.merge(Project(id=project_id, name=project_id))
    run_ids = []
    for name in ("first", "second"):
        with database.transaction() as session:
            spec = _spec(name)
            run = submit(session, spec, project_id=project_id, actor="key:benchmark", now=START)
            run_ids.append(run.id)
    for attempt, step in _schedule():
        for run_id in run_ids:
            with database.transaction() as session:
                run = session.get_one(Run, run_id)
                derive(session, run, attempt, list(_events(rng, attempt, step)))
    return run_ids


def ingest_seconds(database: Database, run_id: str, rounds: int) -> list[float]:
    """Ingest a step of 512 rollouts so many times, each undone; return the time each took."""
    rng, times = random.Random(7), []
    for _ in range(rounds):
        events = list(_events(rng, 3, TOTAL_STEPS - 1))
        with database.transaction() as session, session.begin_nested() as savepoint:
            run = session.get_one(Run, run_id)
            began = time.perf_counter()
            derive(session, run, 3, events)
            times.append(time.perf_counter() - began)
            savepoint.rollback()
    return times


def _spec(name: str) -> RunSpec:
    decodings = [
        {"name": "sampled", "temperature": 1.0, "n_samples_per_prompt": SAMPLES["sampled"]},
        {"name": "greedy", "temperature": 0.0},
    ]
    return RunSpec.model_validate(
        {
            "name": name,
            "data": {"env_keys": ["booking"]},
            "schedule": {"total_steps": TOTAL_STEPS},
            "eval": {"interval": EVAL_EVERY, "decodings": decodings},
            "rollout": {"n_samples_per_prompt": GROUP},
        }
    )


def _schedule() -> Iterator[tuple[int, int]]:
    """Attempt and step, in the order in which they happen."""
    yield from ((1, step) for step in range(RESTARTED_AT + 1))
    yield from ((2, step) for step in range(RESTARTED_AT - REPEATED + 1, TOTAL_STEPS + 1))


def _events(rng: random.Random, attempt: int, step: int) -> Iterator[StepCompleted | EvalCompleted]:
    at = START + timedelta(minutes=step)
    if step:
        tasks = [rng.randrange(NUM_TRAIN_TASKS) for _ in range(GROUPS_PER_STEP)]
        rows = [
            _row(rng, ("train", "train", attempt, step), task, sample, line)
            for line, (task, sample) in enumerate((t, s) for t in tasks for s in range(GROUP))
        ]
        metrics = {name: rng.random() for name in NAMES}
        yield StepCompleted(at=at, step=step, metrics=metrics, outcomes=tuple(_unique(rows)))
    if step % EVAL_EVERY == 0:
        for decoding, samples in SAMPLES.items():
            place = ("eval", decoding, attempt, step)
            pairs = [(task, sample) for task in range(NUM_EVAL_TASKS) for sample in range(samples)]
            yield EvalCompleted(
                at=at,
                step=step,
                decoding=decoding,
                temperature=float(decoding == "sampled"),
                n_samples_per_prompt=samples,
                pass_threshold=1.0,
                metrics={f"eval/{env}/pass_at_1": rng.random() for env in ENVS},
                outcomes=tuple(_row(rng, place, *pair, n) for n, pair in enumerate(pairs)),
                duration_s=60.0,
            )


def _unique(rows: list[OutcomeRow]) -> Iterator[OutcomeRow]:
    """A task that a step draws again goes on counting its samples."""
    seen: dict[str, int] = {}
    for row in rows:
        sample = seen[row.task_key] = seen.get(row.task_key, -1) + 1
        rollout_id = f"{row.rollout_id.rpartition('/')[0]}/{sample}"
        yield row.model_copy(update={"sample_index": sample, "rollout_id": rollout_id})


def _row(
    rng: random.Random, place: tuple[str, str, int, int], task: int, sample: int, line: int
) -> OutcomeRow:
    split, decoding, attempt, step = place
    env = ENVS[task % NUM_ENVS]
    key = f"{env}/{split}/template{task % 40:02}/{task:05}"
    # A task's ease lies between -3 and 3, and training adds up to 1.5 of them.
    ease = (task * 7919 % 601) / 100.0 - 3.0 + 1.5 * step / TOTAL_STEPS
    is_missing = rng.random() < 0.01
    score = float(rng.random() < 1.0 / (1.0 + math.exp(-ease)))
    turns = rng.randint(2, 20)
    return OutcomeRow.model_construct(
        rollout_id=f"{attempt}/{step}/{split}/{decoding}/{key}/{sample}",
        split=split,
        decoding=decoding,
        task_key=key,
        env_key=env,
        template=f"{env}.template{task % 40:02}",
        held_out_template=split == "eval" and task % 4 == 3,
        difficulty=1 + task % 3,
        modality="tool_use",
        sample_index=sample,
        status=OutcomeStatus.INFRA_ERROR if is_missing else OutcomeStatus.GRADED,
        score=None if is_missing else score,
        reason="connect_timeout" if is_missing else None,
        stop_reason=_stop(rng, is_missing=is_missing),
        num_turns=turns,
        num_tool_calls=turns - 1,
        num_tool_errors=turns % 3,
        tool_errors={"argument_validation": turns % 3} if turns % 3 else {},
        num_repeated_calls=int(rng.random() < 0.1),
        num_tokens=turns * rng.randint(50, 300),
        num_thinking_tokens=turns * 20,
        first_weight_version=step,
        last_weight_version=step,
        duration_s=round(rng.uniform(5.0, 90.0), 4),
        reset_s=1.5,
        call_s=7.25,
        verification_s=0.5,
        trajectory=f"trajectories/step-{step:06d}-{split}-{decoding}.jsonl.gz",
        trajectory_line=line,
    )


def _stop(rng: random.Random, *, is_missing: bool) -> StopReason:
    if is_missing:
        return StopReason.INFRA_ERROR
    return StopReason.DONE if rng.random() < 0.8 else StopReason.MAX_TURNS
