"""What several test modules share beside fixtures: tables, and scikit-learn's checks."""

# Seconds that a test waits for another process or thread: on no machine, however busy, does one
# that does not hang take as long.
PATIENCE = 3600
