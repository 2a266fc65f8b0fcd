from trainer.jobs.step_schedule import Schedule


def test_the_last_step_is_always_evaluated_and_saved() -> None:
    schedule = Schedule(total=5, eval_interval=2, checkpoint_interval=3)
    assert [step for step in range(1, 6) if schedule.evaluates_after(step)] == [2, 4, 5]
    assert [step for step in range(1, 6) if schedule.saves_after(step)] == [3, 5]
    assert [schedule.evals_after(step) for step in range(6)] == [3, 3, 2, 2, 1, 0]


def test_interval_zero_evaluates_only_at_the_end() -> None:
    schedule = Schedule(total=5, eval_interval=0, checkpoint_interval=1)
    assert [step for step in range(1, 6) if schedule.evaluates_after(step)] == [5]
