"""Deletion of runs and projects: marks on their rows, and what is kept of a deleted run.

Revision ID: 1030
Revises: 1029
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "1030"
down_revision = "1029"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the marks and the table."""
    op.add_column("runs", sa.Column("deleting_at", MOMENT, nullable=True))
    op.create_index(
        "ix_runs_deleting_at",
        "runs",
        ["deleting_at"],
        postgresql_where=sa.text("deleting_at IS NOT NULL"),
    )
    op.add_column("projects", sa.Column("deleting_at", MOMENT, nullable=True))
    op.add_column("projects", sa.Column("deleted_at", MOMENT, nullable=True))
    op.create_table(
        "deleted_runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("submitted_at", MOMENT, nullable=True),
        sa.Column("deleted_by", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("billed", postgresql.JSONB(), nullable=False),
        sa.Column("num_rows", sa.BigInteger(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", MOMENT, nullable=True),
        sa.Column("checked_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_deleted_runs_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deleted_runs")),
    )
    op.create_index("ix_deleted_runs_page", "deleted_runs", ["project_id", "created_at", "id"])
    op.create_index(
        "ix_deleted_runs_open",
        "deleted_runs",
        ["completed_at"],
        postgresql_where=sa.text("checked_at IS NULL"),
    )


def downgrade() -> None:
    """Drop the table and the marks."""
    op.drop_table("deleted_runs")
    for column in ("deleted_at", "deleting_at"):
        op.drop_column("projects", column)
    op.drop_index("ix_runs_deleting_at", "runs")
    op.drop_column("runs", "deleting_at")
