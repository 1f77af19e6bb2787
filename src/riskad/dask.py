"""Scores of Dask dataframes (extra `scale`, and pandas), computed where the rows are."""

from riskad.app.batch_scoring import score_frame as score

__all__ = ["score"]
