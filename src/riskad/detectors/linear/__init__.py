"""The parts of `ShallowRAD` and `StreamingRAD`: scores g(x) = <w, phi(x)> + b and their fit.

`detector` has what both inherit, `feature_maps` has phi, `lambda_search` and `candidates` choose
lambda and more, and `stream` has the risk of rows that came in batches.
"""
