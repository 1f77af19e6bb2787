"""Experiments of the project: the paper, comparisons, studies and measurements of speed.

They are not installed and use riskad as any program does; `python -m experiments list` names them
and `experiments/README.md` says how to reproduce each table, figure and claim.
"""
