"""Routes of the server, one file per part of the Fleet API."""
