"""Mathematics alone: labels, losses, risks, objectives and theorems.

No files, no rows, no estimators.
"""
