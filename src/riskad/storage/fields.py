"""Moved to `riskad.files.fields`."""

from riskad.files.fields import *  # noqa: F403
