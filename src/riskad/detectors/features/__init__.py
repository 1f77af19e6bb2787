"""Features learned from all rows: the representation comes from unlabelled rows.

`LearnedFeatures` and `SmoothScaler` are scikit-learn transformers, to be used alone, in a pipeline,
or as the `feature_map` of `ShallowRAD`. If a row would be its own nearest neighbour,
`fit_transform` leaves it out, so that training rows and new rows look alike.
"""

from riskad.detectors.features.maps import SmoothScaler
from riskad.detectors.features.union import LearnedFeatures

__all__ = ["LearnedFeatures", "SmoothScaler"]
