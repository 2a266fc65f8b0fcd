"""The revisions that a database has gone through: what older code needs to trust a newer schema.

Revision ID: 1027
Revises: 1025
"""

import sqlalchemy as sa
from alembic import op

revision = "1027"
down_revision = "1025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, with the revisions so far; `migrations/env.py` adds the later ones."""
    op.create_table(
        "schema_revisions",
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
        sa.PrimaryKeyConstraint("revision"),
    )
    script = op.get_context().script
    assert script is not None
    ancestors = script.iterate_revisions(down_revision, "base")
    earlier = [{"revision": each.revision} for each in ancestors]
    op.bulk_insert(sa.table("schema_revisions", sa.column("revision")), earlier)


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("schema_revisions")
