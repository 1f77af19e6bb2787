"""Moved to `riskad.files`."""
