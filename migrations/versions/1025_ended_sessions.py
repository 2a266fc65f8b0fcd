"""Browser sessions that were signed out: their cookies are signed and would be valid for hours.

Revision ID: 1025
Revises: 1024
"""

import sqlalchemy as sa
from alembic import op

revision = "1025"
down_revision = "1024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "ended_sessions",
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_ended_sessions_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_ended_sessions")),
    )
    for column in ("project_id", "expires_at"):
        op.create_index(op.f(f"ix_ended_sessions_{column}"), "ended_sessions", [column])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("ended_sessions")
