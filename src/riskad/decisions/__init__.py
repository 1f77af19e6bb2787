"""What scores and labels tell together: quality, folds, rates, calibration, thresholds, drift."""
