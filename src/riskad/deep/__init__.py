"""Detectors over neural networks: the only package that imports torch.

======================  =====================================================================
`nets`                  the networks, also in ONNX
`batches`               which rows a network sees in each step
`criteria`              how outputs and kinds of label make a loss
`trainer`               the loop over steps; when to stop; what is kept
`base`                  scikit-learn's contract
`risk_detectors`        `DeepRAD` and `NNPU`, which minimise a risk
`deep_sad`              `DeepSAD`, which measures distances from a centre
======================  =====================================================================
"""
