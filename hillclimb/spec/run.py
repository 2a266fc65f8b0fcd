"""`RunSpec` v1: the body of `POST /v1/runs`, the trainer's input, and what is stored with a run."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import ValidationInfo, model_validator

from hillclimb.spec.backend.gang import refuse_misfit
from hillclimb.spec.environment.fleet import (
    refuse_cheap_passes,
    refuse_idle_workers,
    refuse_images,
)
from hillclimb.spec.environment.openenv import refuse_unserved
from hillclimb.spec.preflight.warm_start import refuse_unclear
from hillclimb.spec.rules.deterministic import refuse_clocks, refuse_what_races
from hillclimb.spec.rules.experimental_features import refused_features
from hillclimb.spec.rules.tinker import refuse_beyond_tinker
from hillclimb.spec.sections import RunSections
from hillclimb.spec.training.algorithm import refuse_clips_never_reached
from hillclimb.spec.training.placement import refuse_unfit_for_turns

MINIFLEET_ENV_KEYS = (
    *("booking", "github", "outlook", "reddit", "ticketmaster"),
    *("fira", "hubspot", "zillow"),
)

MAX_ROLLOUTS = 10_000
"""Rollouts of one training step or evaluation: the event that reports them must fit ingest."""


class RunSpec(RunSections):
    """One training run. Unknown keys are refused; absent keys take the documented default.

    The context of a validation may have `accepted`: evidence beside that of the spec.
    """

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        keys = self.data.env_keys
        refuse_images(self.data.modality or "", "data.modality")
        provider, is_made = self.environment.provider, self.data.dataset is None
        if provider == "minifleet" or (provider == "fleet" and is_made):
            unknown = [key for key in keys if key not in MINIFLEET_ENV_KEYS]
            if unknown:
                close = difflib.get_close_matches(unknown[0], MINIFLEET_ENV_KEYS, n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise ValueError(
                    f"unknown environment {unknown[0]!r} in data.env_keys: {hint}minifleet has "
                    + ", ".join(MINIFLEET_ENV_KEYS)
                )
        if self.kind == "validate" and self.validation.exclude and is_made:
            raise ValueError(
                "validation.exclude has nothing to exclude generated tasks from: set data.dataset,"
                " or leave it out"
            )
        if self.environment.provider == "openenv":
            refuse_unserved(self.environment.openenv, self.data)
        elif self.environment.openenv:
            raise ValueError(
                "environment.openenv names servers that this provider does not use: set"
                " environment.provider to openenv or leave the section out"
            )
        unknown = sorted(set(self.environment.overrides) - set(keys))
        if unknown and keys:
            raise ValueError(
                f"environment.overrides names {unknown[0]!r}, which data.env_keys does not list:"
                " add it there or remove the override"
            )
        return self

    @model_validator(mode="after")
    def _an_evaluation_has_an_earlier_one(self) -> Self:
        if self.kind == "eval" and self.eval.stop_when_decided is not None:
            raise ValueError(
                "eval.stop_when_decided compares with an earlier evaluation of the run, and a run"
                " of kind eval has one alone: leave it out"
            )
        return self

    @model_validator(mode="after")
    def _a_rollout_fits_a_step(self) -> Self:
        if self.deterministic:
            return self
        rollout_s, step_s = self.environment.longest_rollout_s, self.schedule.step_timeout_s
        if rollout_s >= step_s:
            raise ValueError(
                f"a rollout may take {rollout_s:g} s (environment: trajectory_timeout_s,"
                f" infra_retry_allowance_s, call_timeout_s and verifier_timeout_s) and a step"
                f" {step_s:g}: lower one of these or raise schedule.step_timeout_s"
            )
        budgets = {"eval": self.eval.budget_minutes}
        if self.kind == "probe":
            budgets["probe"] = self.probe.budget_minutes
        for section, minutes in budgets.items():
            budget_s = 60.0 * (minutes or 0.0)
            if budget_s + rollout_s >= step_s:
                raise ValueError(
                    f"{section}.budget_minutes and one rollout ({budget_s:g} s and {rollout_s:g} s)"
                    f" do not fit schedule.step_timeout_s ({step_s:g}): lower the budget or raise"
                    " the deadline"
                )
        return self

    @model_validator(mode="after")
    def _a_warm_start_is_in_one_process(self) -> Self:
        refuse_unclear(self.sft, is_sft=self.kind == "sft")
        if self.kind == "sft" and self.placement.learner_ranks > 1:
            raise ValueError(
                "a run of kind sft trains in one process: set placement.learner_ranks to 1"
            )
        if self.kind == "sft" and self.backend.type != "runner":
            raise ValueError(
                "a run of kind sft trains on a runner's machine, not on a rented one or a Tinker"
                " server: set backend.type to runner"
            )
        return self

    @model_validator(mode="after")
    def _clips_bound_the_loss(self) -> Self:
        refuse_clips_never_reached(self.algorithm)
        return self

    @model_validator(mode="after")
    def _transport_matches_adapters(self) -> Self:
        if self.engine.weight_transport == "lora" and self.learner.lora is None:
            raise ValueError(
                "engine.weight_transport lora sends an adapter, and none is trained: set"
                " learner.lora, or the transport to auto"
            )
        if self.engine.is_direct and self.learner.lora is not None:
            raise ValueError(
                f"engine.weight_transport {self.engine.weight_transport} sends whole weights, and"
                " an adapter is trained: set the transport to lora"
            )
        return self

    @model_validator(mode="after")
    def _engines_have_a_rank_beside_them(self) -> Self:
        pairs = (self.engine.data_parallel_size, self.placement.learner_ranks)
        if self.engine.weight_transport == "ipc" and pairs[0] != pairs[1]:
            raise ValueError(
                f"engine.weight_transport ipc pairs each engine with a rank of the learner, and"
                f" there are {pairs[0]} and {pairs[1]}: set engine.data_parallel_size and"
                " placement.learner_ranks to the same number"
            )
        return self

    @model_validator(mode="after")
    def _context_groups_are_whole(self) -> Self:
        size, ranks = self.learner.context_parallel_size, self.placement.learner_ranks
        if self.backend.tinker_server is None and ranks % size:
            raise ValueError(
                f"learner.context_parallel_size {size} divides each sequence among that many ranks,"
                f" and placement.learner_ranks is {ranks}: set placement.learner_ranks to a"
                " multiple of it"
            )
        return self

    @model_validator(mode="after")
    def _engines_and_learner_take_turns(self) -> Self:
        refuse_unfit_for_turns(self.placement, self.engine, self.schedule)
        return self

    @model_validator(mode="after")
    def _workers_fit_the_cluster(self) -> Self:
        if self.backend.skypilot is not None:
            learns = self.kind == "train"
            refuse_misfit(self.backend.skypilot, self.engine, self.placement, learns=learns)
        elif self.budget is not None:
            raise ValueError(
                f"a budget limits the cost of rented clusters, and backend.type is"
                f" {self.backend.type}: leave budget out, or rent with the type skypilot"
            )
        return self

    @model_validator(mode="after")
    def _copies_need_processes(self) -> Self:
        copies = {
            "engine.data_parallel_size": self.engine.data_parallel_size,
            "placement.learner_ranks": self.placement.learner_ranks,
            "placement.rollout_workers": self.placement.rollout_workers,
        }
        several = [key for key, number in copies.items() if number > 1]
        if several and self.placement.type == "inline":
            raise ValueError(
                f"{several[0]} above 1 needs processes of its own: set placement.type to ray"
            )
        has_workers = self.kind in ("train", "eval", "probe")
        if has_workers and self.environment.provider == "fleet":
            refuse_idle_workers(self.environment.fleet, self.placement.rollout_workers)
            refuse_cheap_passes(self.environment.fleet, self.eval.pass_threshold)
        return self

    @model_validator(mode="after")
    def _is_deterministic_throughout(self) -> Self:
        if self.deterministic:
            refuse_what_races(self.engine, self.placement.type, self.schedule)
            refuse_clocks(self.environment, self.eval, self.probe if self.kind == "probe" else None)
        return self

    @model_validator(mode="after")
    def _a_tinker_server_supports_it(self) -> Self:
        if self.backend.tinker_server is not None:
            refuse_beyond_tinker(self, self.backend.tinker_server)
        return self

    @model_validator(mode="after")
    def _experimental_features_are_allowed(self, info: ValidationInfo) -> Self:
        for feature in refused_features(self, (info.context or {}).get("accepted", ())):
            raise ValueError(f"{feature.setting} was never run: {feature.remedy}")
        return self

    @model_validator(mode="after")
    def _rollouts_fit_one_event(self) -> Self:
        num_rollouts = self.schedule.train_batch_size * self.rollout.n_samples_per_prompt
        remedy = "schedule.train_batch_size or rollout.n_samples_per_prompt"
        if self.algorithm.dynamic_sampling is not None:
            num_rollouts *= self.algorithm.dynamic_sampling.max_sample_batches
            remedy += " or algorithm.dynamic_sampling.max_sample_batches"
        _refuse_too_many(num_rollouts, "a training step", remedy)
        if self.data.dataset is None:
            num_eval = len(self.data.env_keys) * self.data.eval_tasks_per_env
            self.check_tasks(self.data.num_train_tasks(), num_eval)
        if self.kind == "probe":
            num_tasks = len(self.data.env_keys) * self.probe.tasks_per_env
            _refuse_too_many(
                num_tasks * self.probe.n_samples_per_prompt,
                "a probe",
                "probe.tasks_per_env or probe.n_samples_per_prompt",
            )
        return self

    def check_tasks(self, train: Mapping[str, int], num_eval: int) -> None:
        """Refuse numbers of tasks that do not suit the run's settings.

        The service calls it for a dataset, whose tasks are not in the spec. `train` are the
        numbers of training tasks of the environments that have any.

        Raises:
            ValueError: a sentence that names what to change.
        """
        if self.kind in ("train", "eval"):
            self.data.check_step(self.schedule.train_batch_size, train)
        self.check_evaluation(num_eval)

    def check_evaluation(self, num_eval: int) -> None:
        """Refuse a number of eval tasks whose rollouts do not fit one event.

        Raises:
            ValueError: a sentence that names what to change.
        """
        remedy = "data.eval_tasks_per_env or " if self.data.dataset is None else ""
        for decoding in self.eval.decodings if self.kind in ("train", "eval") else ():
            _refuse_too_many(
                num_eval * decoding.n_samples_per_prompt,
                f"an evaluation by {decoding.name}",
                f"{remedy}the decoding's n_samples_per_prompt",
            )


def _refuse_too_many(num_rollouts: int, unit: str, remedy: str) -> None:
    if num_rollouts > MAX_ROLLOUTS:
        raise ValueError(
            f"{unit} would have {num_rollouts} rollouts, and at most {MAX_ROLLOUTS} are reported at"
            f" once: lower {remedy}"
        )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a run spec, as served at `/v1/schemas/run-spec`."""
    return RunSpec.model_json_schema() | {"$schema": "https://json-schema.org/draft/2020-12/schema"}
