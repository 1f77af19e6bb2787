"""The parts of `ShallowRAD` and `StreamingRAD`: scores g(x) = <w, phi(x)> + b and their fit.

==================  ==============================================================================
module              one reason to change
==================  ==============================================================================
settings            which values of a parameter are allowed
training_rows       which rows a fit takes: tensors on a device, labels, columns
feature_maps        phi: named maps, standardised columns, maps over row sources
lambda_search       lambda: Theorem 1, tight, cross-validated
candidates          a, prior and lambda chosen together, for the kernels of `AutoRAD`
solution            what a fit reports: weights, risk parts, threshold
description         scores of new rows, what each column adds to them, and what a fit says
stream_summary      what is kept of rows that came in batches
stream_problem      the risk of all rows of such a summary, and its minimum
==================  ==============================================================================

All but `description`, from which both detectors inherit, hold plain functions and data classes over
`riskad.rows` and `riskad.solvers`.
"""
