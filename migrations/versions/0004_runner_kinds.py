"""kinds of runs that a runner carries out

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    kinds = postgresql.ARRAY(sa.String())
    # Runners that registered before said nothing: they name their kinds when they start again. The
    # default stays: an API process of the old version that still serves inserts runners without.
    op.add_column(
        "runners", sa.Column("kinds", kinds, nullable=False, server_default="{train,eval}")
    )


def downgrade() -> None:
    op.drop_column("runners", "kinds")
