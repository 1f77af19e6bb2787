"""The calendar as arithmetic on whole numbers in float64: floor, remainder and nothing else.

Days are counted from 1970-01-01, in the Gregorian calendar extended to all years. A year is taken
to begin in March, so that the leap day is its last: with a = 0 for March, ..., 11 for February,
the days of such a year before month a are floor((153 a + 2) / 5), and 400 years have 146,097 days.
NaN gives NaN.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["DAY", "EARLIEST", "LATEST", "Floats", "civil_of_days", "days_of_civil"]

Floats: TypeAlias = NDArray[np.float64]

DAY = 86_400.0
_MARCH_0000 = 719_468  # days from 0000-03-01 to 1970-01-01
EARLIEST = -62_135_596_800.0  # the first second of year 1
LATEST = 253_402_300_800.0  # the end of year 9999


def days_of_civil(year: Floats, month: Floats, day: Floats) -> Floats:
    """Days from 1970-01-01 to a date.

    >>> float(days_of_civil(np.float64(2024), np.float64(2), np.float64(29)))
    19782.0
    """
    year = year - np.floor((14 - month) / 12)  # January and February end the year before
    era = np.floor(year / 400)
    in_era = year - 400 * era
    in_year = np.floor((153 * np.mod(month + 9, 12) + 2) / 5) + day - 1
    leap = np.floor(in_era / 4) - np.floor(in_era / 100)
    return 146_097 * era + 365 * in_era + leap + in_year - _MARCH_0000


def civil_of_days(days: Floats) -> tuple[Floats, Floats, Floats]:
    """Year, month and day of the month, days after 1970-01-01.

    >>> [float(part) for part in civil_of_days(np.float64(19782))]
    [2024.0, 2.0, 29.0]
    """
    shifted = days + _MARCH_0000
    era = np.floor(shifted / 146_097)
    in_era = shifted - 146_097 * era
    leap = np.floor(in_era / 1_460) - np.floor(in_era / 36_524) + np.floor(in_era / 146_096)
    year = np.floor((in_era - leap) / 365)
    in_year = in_era - (365 * year + np.floor(year / 4) - np.floor(year / 100))
    from_march = np.floor((5 * in_year + 2) / 153)
    day = in_year - np.floor((153 * from_march + 2) / 5) + 1
    return (
        year + 400 * era + np.floor(from_march / 10),
        np.mod(from_march + 2, 12) + 1,
        day,
    )
