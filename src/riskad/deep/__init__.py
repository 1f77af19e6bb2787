"""Detectors over neural networks: the only package that imports torch.

======================  =====================================================================
module                  knows
======================  =====================================================================
`layers`                layers of K networks side by side
`nets`                  K networks of one shape as one stack
`kernels`               the steps after a convolution, fused on an NVIDIA GPU
`ranks`                 several processes that train as one
`disk`                  rows in a file, read while training
`batches`               which rows each network sees in each step
`criteria`              how outputs and kinds of label make K losses
`trainer`               the loop over steps; when to stop; what is kept
`base`                  scikit-learn's contract, and how detectors train together
`risk_detectors`        `DeepRAD` and `NNPU`, which minimise a risk
`deep_sad`              `DeepSAD`, which measures distances from a centre
`together`              many detectors fitted at once: `Together`
`state`                 fitted detectors as bytes, without pickle
======================  =====================================================================

Everything below the detectors is written for K networks at once; a detector is K = 1.
"""

from riskad.deep.together import Together

__all__ = ["Together"]
