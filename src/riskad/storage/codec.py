"""Moved to `riskad.files.codec`."""

from riskad.files.codec import *  # noqa: F403
