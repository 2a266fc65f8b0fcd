"""Experiments and their runs.

Revision ID: 1014
Revises: 1013
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1014"
down_revision = "1013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "experiments",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("parent_id", sa.String(), sa.ForeignKey("experiments.id"), nullable=True),
        sa.Column("text", JSONB(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
        sa.UniqueConstraint("project_id", "key"),
    )
    op.create_index("ix_experiments_page", "experiments", ["project_id", "created_at", "id"])
    op.create_table(
        "experiment_runs",
        sa.Column("experiment_id", sa.String(), sa.ForeignKey("experiments.id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), sa.ForeignKey("runs.id"), nullable=True),
        sa.Column("digest", sa.String(), nullable=True),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("arm", sa.String(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("settings", JSONB(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id", "digest"], ["campaign_cells.project_id", "campaign_cells.digest"]
        ),
        sa.UniqueConstraint("experiment_id", "run_id"),
        sa.UniqueConstraint("experiment_id", "digest"),
    )
    op.create_index("ix_experiment_runs_run", "experiment_runs", ["run_id"])
    op.create_index("ix_experiment_runs_cell", "experiment_runs", ["project_id", "digest"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("experiment_runs")
    op.drop_table("experiments")
