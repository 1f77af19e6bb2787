"""Moved to `riskad.files.records`."""

from riskad.files.records import *  # noqa: F403
