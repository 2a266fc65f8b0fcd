"""Errors of campaigns."""

from __future__ import annotations


class CampaignError(Exception):
    """Root of the tree."""


class CampaignNotFound(CampaignError):
    """The project has no such campaign; the message is a sentence for the user."""


class CampaignRejected(CampaignError):
    """A cell's run spec is not valid; the message names the cell and the mistake."""
