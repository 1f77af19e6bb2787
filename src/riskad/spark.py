"""Scores of Spark dataframes (extra `spark`), computed where the rows are."""

from riskad.app.batch_scoring import score_frame as score

__all__ = ["score"]
