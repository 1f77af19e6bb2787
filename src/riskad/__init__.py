"""Anomaly detection from a few labelled rows and a contaminated unlabelled pile."""

__version__ = "0.1.0.dev0"
