"""What several test modules share beside fixtures: tables, and scikit-learn's checks."""
