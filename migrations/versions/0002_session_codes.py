"""session codes

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "session_codes",
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_session_codes_key_id_api_keys")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_session_codes_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_session_codes")),
    )
    op.create_index(
        op.f("ix_session_codes_expires_at"), "session_codes", ["expires_at"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_session_codes_expires_at"), table_name="session_codes")
    op.drop_table("session_codes")
