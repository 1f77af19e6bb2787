"""Training of the network of `riskad.PretrainedRAD` on synthetic and real tables."""
