"""Moved to `riskad.files.atomic`."""

from riskad.files.atomic import *  # noqa: F403
