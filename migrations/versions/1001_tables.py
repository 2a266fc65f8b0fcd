"""Every table of the service, in the order of their references.

Revision ID: 1001
Revises:
"""

from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "1001"
down_revision = None
branch_labels = None
depends_on = None


def _columns(
    kind: sa.types.TypeEngine[Any], *names: str, nullable: bool = False
) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable) for name in names]


def _now(*names: str) -> list[sa.Column[Any]]:
    now = sa.text("now()")
    return [
        sa.Column(name, sa.DateTime(timezone=True), server_default=now, nullable=False)
        for name in names
    ]


def _reference(name: str, target: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.String(), sa.ForeignKey(target), nullable=nullable)


_bigint = partial(_columns, sa.BigInteger())
_boolean = partial(_columns, sa.Boolean())
_double = partial(_columns, sa.Double())
_integer = partial(_columns, sa.Integer())
_json = partial(_columns, postgresql.JSONB())
_string = partial(_columns, sa.String())
_time = partial(_columns, sa.DateTime(timezone=True))


def _cloud_exclusions() -> None:
    op.create_table(
        "cloud_exclusions",
        *_string("id", "infra", "reason"),
        *_string("region", "sku", nullable=True),
        *_time("until"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
    )


def _deployments() -> None:
    op.create_table(
        "deployments",
        *_string("id", "tag"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("tag"),
    )


def _orphaned_clusters() -> None:
    op.create_table(
        "orphaned_clusters",
        *_string("name"),
        *_time("first_seen_at"),
        *_time("terminate_requested_at", "last_terminated_at", nullable=True),
        *_string("terminate_requested_by", nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )


def _price_quotes() -> None:
    op.create_table(
        "price_quotes",
        *_string("key"),
        *_json("candidate"),
        *_time("asked_at"),
        *_time("lease_until", "fetched_at", nullable=True),
        *_json("offers", nullable=True),
        *_string("problem", nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )


def _projects() -> None:
    op.create_table(
        "projects",
        *_string("id", "name"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        *_string("id", "name", "prefix", "sha256"),
        _reference("project_id", "projects.id"),
        sa.Column("scopes", postgresql.ARRAY(sa.String()), nullable=False),
        *_time("revoked_at", nullable=True),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sha256"),
    )
    op.create_index("ix_api_keys_prefix", "api_keys", ["prefix"])
    op.create_index("ix_api_keys_project_id", "api_keys", ["project_id"])


def _datasets() -> None:
    op.create_table(
        "datasets",
        *_string("id", "name", "created_by"),
        _reference("project_id", "projects.id"),
        *_integer("num_versions"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "name"),
    )


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        _reference("project_id", "projects.id"),
        *_string("method", "path", "key", "body_hash"),
        *_integer("status", nullable=True),
        *_json("response", nullable=True),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("project_id", "method", "path", "key"),
    )


def _project_limits() -> None:
    op.create_table(
        "project_limits",
        _reference("project_id", "projects.id"),
        *_double("usd", "hours", nullable=True),
        *_integer("max_clusters"),
        *_time("since"),
        *_string("set_by"),
        sa.PrimaryKeyConstraint("project_id"),
    )


def _runners() -> None:
    op.create_table(
        "runners",
        *_string("id", "name", "hostname"),
        _reference("project_id", "projects.id"),
        *_integer("slots"),
        *_boolean("draining"),
        *_time("lease_until", "registered_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "name"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        *_string("id", "name", "status", "desired_state", "config_hash", "created_by"),
        _reference("project_id", "projects.id"),
        *_string("pause_code", "pause_message", "end_code", "end_message", nullable=True),
        *_string("progress_phase", "lease_owner", nullable=True),
        *_json("spec"),
        *_integer("attempt", "num_failures", "progress_step", "progress_total", "last_seq"),
        *_integer("epoch"),
        sa.Column("resumed_after", sa.Integer(), server_default="0", nullable=False),
        *_double("progress_eta_s", nullable=True),
        *_time("lease_until", "due_at", "deadline_at", "started_at", "ended_at", nullable=True),
        *_time("status_since"),
        *_now("updated_at", "created_at"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_runs_due", "runs", ["due_at"], postgresql_where=sa.text("due_at IS NOT NULL")
    )
    op.create_index("ix_runs_page", "runs", ["project_id", "created_at", "id"])
    op.create_index("ix_runs_status", "runs", ["status"])


def _attempts() -> None:
    op.create_table(
        "attempts",
        *_string("id", "state"),
        _reference("run_id", "runs.id"),
        *_integer("number", "from_step", "last_trainer_seq"),
        _reference("runner_id", "runners.id", nullable=True),
        *_string("token_hash", "resume_from", "trainer_code", "trainer_message", nullable=True),
        *_string("end_code", "end_message", nullable=True),
        *_time("scheduled_at"),
        *_time("claimed_at", "started_at", "last_held_at", "last_event_at", nullable=True),
        *_time("stop_requested_at", "kill_requested_at", "ended_at", nullable=True),
        *_integer("final_trainer_seq", "exit_code", nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "number"),
        sa.UniqueConstraint("token_hash"),
    )
    op.create_index("ix_attempts_runner_id", "attempts", ["runner_id"])
    op.create_index("ix_attempts_state", "attempts", ["state"])


def _budget_extensions() -> None:
    op.create_table(
        "budget_extensions",
        *_string("id", "granted_by"),
        _reference("run_id", "runs.id"),
        *_double("usd", "hours"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_budget_extensions_run_id", "budget_extensions", ["run_id"])


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        _reference("run_id", "runs.id"),
        *_integer("step", "attempt"),
        *_string("path", "manifest_sha256"),
        *_bigint("size_bytes"),
        *_boolean("final"),
        *_time("saved_at"),
        *_time("deleted_at", nullable=True),
        sa.PrimaryKeyConstraint("run_id", "step", "attempt"),
    )


def _dataset_exclusions() -> None:
    op.create_table(
        "dataset_exclusions",
        *_string("id", "scope", "key", "reason", "source", "created_by"),
        _reference("project_id", "projects.id"),
        _reference("dataset_id", "datasets.id"),
        *_time("expires_at", nullable=True),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("dataset_id", "scope", "key"),
    )


def _dataset_versions() -> None:
    op.create_table(
        "dataset_versions",
        *_string("id", "digest", "identity", "source", "created_by"),
        _reference("project_id", "projects.id"),
        _reference("dataset_id", "datasets.id"),
        *_integer("number", "num_tasks", "num_train", "num_eval"),
        _reference("parent_id", "dataset_versions.id", nullable=True),
        *_bigint("size_bytes"),
        *_json("options", "facts", "lint"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("dataset_id", "identity"),
        sa.UniqueConstraint("dataset_id", "number"),
    )


def _evals() -> None:
    op.create_table(
        "evals",
        _reference("run_id", "runs.id"),
        *_integer("attempt", "step", "n_samples_per_prompt"),
        *_string("decoding"),
        *_double("temperature", "pass_threshold", "duration_s"),
        *_time("at"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", "decoding"),
    )


def _events() -> None:
    op.create_table(
        "events",
        _reference("run_id", "runs.id"),
        *_integer("seq"),
        *_string("id", "type", "actor"),
        *_integer("attempt", "trainer_seq", nullable=True),
        *_time("at"),
        *_json("data"),
        sa.PrimaryKeyConstraint("run_id", "seq"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("run_id", "attempt", "trainer_seq"),
    )
    op.create_index("ix_events_type", "events", ["run_id", "type", "seq"])


def _metrics() -> None:
    op.create_table(
        "metrics",
        _reference("run_id", "runs.id"),
        *_string("name", "decoding"),
        *_integer("step", "attempt"),
        *_double("value"),
        sa.PrimaryKeyConstraint("run_id", "name", "decoding", "step", "attempt"),
    )


def _outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        _reference("project_id", "projects.id"),
        _reference("run_id", "runs.id"),
        *_string("kind", "dedupe_key", "state"),
        *_json("payload"),
        *_integer("num_attempts"),
        *_now("next_attempt_at", "created_at"),
        *_string("lease_owner", "error", nullable=True),
        *_time("lease_until", "delivered_at", nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("dedupe_key"),
    )
    op.create_index(
        "ix_outbox_due",
        "outbox",
        ["next_attempt_at"],
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index("ix_outbox_run_id", "outbox", ["run_id"])


def _outcomes() -> None:
    op.create_table(
        "outcomes",
        _reference("run_id", "runs.id"),
        *_string("rollout_id", "split", "decoding", "task_key", "env_key", "template", "status"),
        *_string("stop_reason", "trajectory"),
        *_integer("attempt", "step", "sample_index", "num_turns", "num_tool_calls"),
        *_integer("num_tool_errors", "num_repeated_calls", "num_tokens", "num_infra_retries"),
        *_integer("trajectory_line"),
        *_boolean("held_out_template"),
        *_double("score", nullable=True),
        *_string("reason", nullable=True),
        *_double("duration_s"),
        sa.PrimaryKeyConstraint("run_id", "rollout_id"),
    )
    op.create_index(
        "ix_outcomes_env", "outcomes", ["run_id", "env_key", "split", "decoding", "step"]
    )
    op.create_index(
        "ix_outcomes_step", "outcomes", ["run_id", "split", "decoding", "step", "attempt"]
    )


def _session_codes() -> None:
    op.create_table(
        "session_codes",
        *_string("sha256"),
        _reference("project_id", "projects.id"),
        _reference("key_id", "api_keys.id"),
        *_time("expires_at"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_index("ix_session_codes_expires_at", "session_codes", ["expires_at"])


def _slack_threads() -> None:
    op.create_table(
        "slack_threads",
        _reference("run_id", "runs.id"),
        *_string("channel", "ts"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("run_id", "channel"),
    )


def _clusters() -> None:
    op.create_table(
        "clusters",
        *_string("id", "name", "state"),
        _reference("project_id", "projects.id"),
        _reference("run_id", "runs.id"),
        _reference("attempt_id", "attempts.id"),
        *_string("cause", "message", "status_reason", "bootstrap_nonce", nullable=True),
        *_string("request_id", "infra", "region", "sku", "observed_state", nullable=True),
        *_string("termination_request_id", nullable=True),
        *_json("bootstrapped_members"),
        *_time("api_unreachable_at", "launch_requested_at", "jobs_requested_at", nullable=True),
        *_time("billed_from", "running_at", "wall_limit_at", "seen_at", nullable=True),
        *_time("unhealthy_since", "terminating_at", "end_warned_at", nullable=True),
        *_time("termination_requested_at", "terminated_at", "lease_until", nullable=True),
        *_time("due_at", nullable=True),
        *_integer("node_beat", "job_id", nullable=True),
        *_integer("launch_tries", "polls_without_job", "num_nodes", "missed_polls", "epoch"),
        *_double("hourly_usd", nullable=True),
        *_double("max_hours"),
        *_now("created_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("attempt_id"),
        sa.UniqueConstraint("name"),
    )
    op.create_index(
        "ix_clusters_due", "clusters", ["due_at"], postgresql_where=sa.text("due_at IS NOT NULL")
    )
    op.create_index("ix_clusters_project_id_created_at", "clusters", ["project_id", "created_at"])
    op.create_index("ix_clusters_run_id", "clusters", ["run_id"])


def _offers() -> None:
    op.create_table(
        "offers",
        _reference("cluster_id", "clusters.id"),
        *_integer("launch", "number"),
        *_time("at"),
        *_double("seconds", "hourly_usd", nullable=True),
        *_string("infra", "outcome"),
        *_string("region", "sku", "error_class", "message", nullable=True),
        sa.PrimaryKeyConstraint("cluster_id", "launch", "number"),
    )


TABLES = {
    "cloud_exclusions": _cloud_exclusions,
    "deployments": _deployments,
    "orphaned_clusters": _orphaned_clusters,
    "price_quotes": _price_quotes,
    "projects": _projects,
    "api_keys": _api_keys,
    "datasets": _datasets,
    "idempotency_keys": _idempotency_keys,
    "project_limits": _project_limits,
    "runners": _runners,
    "runs": _runs,
    "attempts": _attempts,
    "budget_extensions": _budget_extensions,
    "checkpoints": _checkpoints,
    "dataset_exclusions": _dataset_exclusions,
    "dataset_versions": _dataset_versions,
    "evals": _evals,
    "events": _events,
    "metrics": _metrics,
    "outbox": _outbox,
    "outcomes": _outcomes,
    "session_codes": _session_codes,
    "slack_threads": _slack_threads,
    "clusters": _clusters,
    "offers": _offers,
}
"""Each with what creates it, in the order of their references."""


def upgrade() -> None:
    for create in TABLES.values():
        create()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
