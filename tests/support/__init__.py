"""What several test modules share beside fixtures: tables, and scikit-learn's checks."""

import time

# Seconds that a test waits for another process or thread: on no machine, however busy, does one
# that does not hang take as long.
PATIENCE = 3600


def wait_for(condition, pause=0.02):
    """Wait until something has happened."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(pause)
