"""Short validations: real environments, real journal and store, no model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hillclimb.environment.base import EnvProvider
from hillclimb.protocol.events import ValidationCompleted
from hillclimb.protocol.validation import TaskValidation
from tests.trainer.fixtures.short_run import ShortRun
from trainer.jobs.validate.rows import read_rows, rows_key
from trainer.jobs.validate.validator import Validator
from trainer.jobs.validate.wiring import build_validator, validation_tasks

TWO_ENVS: dict[str, Any] = {
    "env_keys": ["booking", "github"],
    "train_tasks_per_env": 30,
    "eval_tasks_per_env": 4,
}


class Validation(ShortRun):
    """A run of kind `validate`."""

    def __init__(
        self,
        root: Path,
        *,
        tasks_per_env: int | None = 3,
        teacher: Mapping[str, Any] | None = None,
        **sections: dict[str, Any],
    ) -> None:
        section = {"tasks_per_env": tasks_per_env, "teacher": teacher}
        super().__init__(root, **{"validation": section, **sections})
        self.spec = self.spec.model_copy(update={"kind": "validate"})

    def tasks(self) -> tuple[Any, ...]:
        return validation_tasks(self.spec, self.store)

    def validator(
        self,
        provider: EnvProvider | None = None,
        *,
        attempt: int = 1,
        environ: Mapping[str, str] | None = None,
    ) -> Validator:
        parts = self.begin(attempt)
        try:
            return build_validator(parts, provider, environ or {})
        except BaseException:
            self.journal.abandon()
            raise

    async def run(
        self,
        provider: EnvProvider | None = None,
        *,
        attempt: int = 1,
        environ: Mapping[str, str] | None = None,
    ) -> ValidationCompleted:
        await self.finish(self.validator(provider, attempt=attempt, environ=environ))
        return self.event(attempt)

    def event(self, attempt: int = 1) -> ValidationCompleted:
        (event,) = self.events(ValidationCompleted, attempt)
        found: ValidationCompleted = event
        return found

    def rows(self, attempt: int = 1) -> list[TaskValidation]:
        return read_rows(self.store.get(rows_key(self.dir(attempt), attempt)))
