"""Episodes of guards, and when the guard of progress trips.

Revision ID: 1015
Revises: 1014
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1015"
down_revision = "1014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the column; runs of before have no guards."""
    op.add_column("runs", sa.Column("progress_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("runs", sa.Column("stuck_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_runs_stuck_at",
        "runs",
        ["stuck_at"],
        postgresql_where=sa.text("stuck_at IS NOT NULL"),
    )
    op.create_table(
        "guard_trips",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("guard", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("tripped_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("evidence", JSONB(), nullable=False),
        sa.Column("cleared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cleared_step", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_guard_trips_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "guard", "number", name="pk_guard_trips"),
    )
    op.create_index(
        "uq_guard_trips_open",
        "guard_trips",
        ["run_id", "guard"],
        unique=True,
        postgresql_where=sa.text("cleared_at IS NULL"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("guard_trips")
    op.drop_index("ix_runs_stuck_at", table_name="runs")
    op.drop_column("runs", "stuck_at")
    op.drop_column("runs", "progress_at")
