"""Campaigns and their cells.

Revision ID: 1006
Revises: 1005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1006"
down_revision = "1005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "campaigns",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("spec", JSONB(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
    )
    op.create_index("ix_campaigns_page", "campaigns", ["project_id", "created_at", "id"])
    op.create_table(
        "campaign_cells",
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), primary_key=True),
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("spec", JSONB(), nullable=False),
        sa.Column("run_id", sa.String(), sa.ForeignKey("runs.id"), nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.Column("num_launches", sa.Integer(), nullable=False),
    )
    op.create_table(
        "campaign_members",
        sa.Column("campaign_id", sa.String(), sa.ForeignKey("campaigns.id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("dataset", sa.String(), nullable=True),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id", "digest"], ["campaign_cells.project_id", "campaign_cells.digest"]
        ),
    )
    op.create_index("ix_campaign_members_cell", "campaign_members", ["project_id", "digest"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("campaign_members")
    op.drop_table("campaign_cells")
    op.drop_table("campaigns")
