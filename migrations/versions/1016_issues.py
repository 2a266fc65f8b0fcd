"""The ledger of issues, and failure patterns of stored rollouts by other detectors.

Revision ID: 1016
Revises: 1015
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1016"
down_revision = "1015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "issues",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("impact", sa.String(), nullable=False),
        sa.Column("symptom", sa.String(), nullable=False),
        sa.Column("env_key", sa.String(), nullable=True),
        sa.Column("decoding", sa.String(), nullable=True),
        sa.Column("baseline_run_id", sa.String(), sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("baseline_step", sa.Integer(), nullable=False),
        sa.Column("after_run_id", sa.String(), sa.ForeignKey("runs.id"), nullable=True),
        sa.Column("after_step", sa.Integer(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_by", sa.String(), nullable=True),
        sa.Column("resolution", sa.String(), nullable=True),
        sa.UniqueConstraint("project_id", "number", name="uq_issues_project_id_number"),
    )
    op.create_index("ix_issues_page", "issues", ["project_id", "created_at", "id"])
    op.create_table(
        "pattern_searches",
        sa.Column("run_id", sa.String(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("version", sa.Integer(), primary_key=True),
        sa.Column("rollout_id", sa.String(), primary_key=True),
        sa.Column("patterns", JSONB(), nullable=False),
        sa.Column("searched_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("pattern_searches")
    op.drop_table("issues")
