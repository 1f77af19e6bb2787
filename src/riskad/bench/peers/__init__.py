"""Methods of other packages with the face of our detectors, to be compared with."""

from riskad.bench.peers.adapters import Classifier, NotApplicable, Peer, Scorer

__all__ = ["Classifier", "NotApplicable", "Peer", "Scorer"]
