"""The parts of `ShallowRAD` and `StreamingRAD`: scores g(x) = <w, phi(x)> + b and their fit.

`settings` says which values of a parameter are allowed, `feature_maps` has phi, `lambda_search` and
`candidates` choose lambda and more, `scores` has what both detectors inherit: scores of new rows
and what a fit found. `stream` has the risk of rows that came in batches.
"""
