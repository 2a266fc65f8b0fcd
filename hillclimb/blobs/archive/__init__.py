"""Zip files that anybody may have made: capsules, and dumps to import."""
