"""Feature maps learned from all rows: the representation comes from unlabelled rows.

Each is a scikit-learn transformer, to be used alone, in a pipeline, in a `FeatureUnion`, or as the
`feature_map` of `ShallowRAD`. All are fitted on training rows only. If a row would be its own
nearest neighbour, `fit_transform` leaves it out, so that training rows and new rows look alike.
"""

from riskad.detectors.features.learned import LearnedFeatures
from riskad.detectors.features.maps import GaussianKernels, OutlierScores
from riskad.detectors.features.scaling import SmoothScaler

__all__ = ["GaussianKernels", "LearnedFeatures", "OutlierScores", "SmoothScaler"]
