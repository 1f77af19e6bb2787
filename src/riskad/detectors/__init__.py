"""Detectors: the protocol that all share, and each of them."""
