"""clusters, what was tried to get them, budgets

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "stray_clusters",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("met_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_stray_clusters")),
    )
    op.add_column(
        "runs", sa.Column("resumed_after", sa.Integer(), server_default="0", nullable=False)
    )
    op.add_column("runs", sa.Column("pause_code", sa.String(), nullable=True))
    op.add_column("runs", sa.Column("pause_message", sa.String(), nullable=True))
    op.create_table(
        "cloud_exclusions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("infra", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=True),
        sa.Column("sku", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cloud_exclusions")),
    )
    op.create_table(
        "deployments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tag", sa.String(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployments")),
        sa.UniqueConstraint("tag", name=op.f("uq_deployments_tag")),
    )
    op.create_table(
        "project_limits",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("usd", sa.Double(), nullable=True),
        sa.Column("hours", sa.Double(), nullable=True),
        sa.Column("max_clusters", sa.Integer(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("set_by", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_project_limits_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_project_limits")),
    )
    op.create_table(
        "budget_extensions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("usd", sa.Double(), nullable=False),
        sa.Column("hours", sa.Double(), nullable=False),
        sa.Column("granted_by", sa.String(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_budget_extensions_run_id_runs")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budget_extensions")),
    )
    op.create_index(
        op.f("ix_budget_extensions_run_id"), "budget_extensions", ["run_id"], unique=False
    )
    op.create_table(
        "clusters",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=True),
        sa.Column("exchange_nonce", sa.String(), nullable=True),
        sa.Column("node_beat", sa.Integer(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("launch_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("launch_tries", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("jobs_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("num_nodes", sa.Integer(), nullable=False),
        sa.Column("infra", sa.String(), nullable=True),
        sa.Column("region", sa.String(), nullable=True),
        sa.Column("sku", sa.String(), nullable=True),
        sa.Column("hourly_usd", sa.Double(), nullable=True),
        sa.Column("paid_from", sa.DateTime(timezone=True), nullable=True),
        sa.Column("up_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("max_hours", sa.Double(), nullable=False),
        sa.Column("wall_limit_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seen_state", sa.String(), nullable=True),
        sa.Column("num_unseen", sa.Integer(), nullable=False),
        sa.Column("unsound_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("down_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_clusters_attempt_id_attempts")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_clusters_project_id_projects")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_clusters_run_id_runs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
        sa.UniqueConstraint("attempt_id", name=op.f("uq_clusters_attempt_id")),
        sa.UniqueConstraint("name", name=op.f("uq_clusters_name")),
    )
    op.create_index(
        "ix_clusters_due",
        "clusters",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_clusters_project_id_created_at", "clusters", ["project_id", "created_at"], unique=False
    )
    op.create_index(op.f("ix_clusters_run_id"), "clusters", ["run_id"], unique=False)
    op.create_table(
        "offers",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("launch", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("infra", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=True),
        sa.Column("sku", sa.String(), nullable=True),
        sa.Column("hourly_usd", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("error_class", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_offers_cluster_id_clusters")
        ),
        sa.PrimaryKeyConstraint("cluster_id", "launch", "number", name=op.f("pk_offers")),
    )


def downgrade() -> None:
    op.drop_table("stray_clusters")

    op.drop_table("offers")
    op.drop_index(op.f("ix_clusters_run_id"), table_name="clusters")
    op.drop_index("ix_clusters_project_id_created_at", table_name="clusters")
    op.drop_index(
        "ix_clusters_due", table_name="clusters", postgresql_where=sa.text("due_at IS NOT NULL")
    )
    op.drop_table("clusters")
    op.drop_index(op.f("ix_budget_extensions_run_id"), table_name="budget_extensions")
    op.drop_table("budget_extensions")
    op.drop_table("project_limits")
    op.drop_table("deployments")
    op.drop_table("cloud_exclusions")
    op.drop_column("runs", "pause_message")
    op.drop_column("runs", "pause_code")
    op.drop_column("runs", "resumed_after")
