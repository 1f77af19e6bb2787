"""The marks of which written numbers consist: signs, groups, decimals, currencies and units."""

from __future__ import annotations

import re

from riskad.tables.formats.gaps import BLANKS

__all__ = [
    "CURRENCIES",
    "GROUP_MARKS",
    "MINUS",
    "SCALES",
    "SIGNS",
    "body_pattern",
    "cell_pattern",
    "is_currency",
    "is_moment_or_rank",
    "is_unit",
    "scale_of",
    "unit_of",
    "words_of",
]

MINUS = "-\u2212\u2013"  # as on the keyboard, as in mathematics, as typesetters do
SIGNS = MINUS + "+"
GROUP_MARKS = ",.'\u2019" + BLANKS  # between the groups of a long number

# Codes that are also English words (ALL, TOP) are left out.
_MONEY = """
    € $ £ ¥ ₹ ₽ ₩ ₺ ₴ ₪ ₫ ₦ ₱ ₿ ฿ ¢ ₡ ₲ ₸ ₮ ₼ ₾ ₵ US$ C$ CA$ A$ AU$ NZ$ HK$ S$ R$ MX$ NT$
    zł zl Kč Ft lei kr kr. Kr Kr. Fr Fr. SFr SFr. Rs Rs. Rp
    EUR USD GBP JPY CHF CAD AUD NZD CNY RMB HKD SGD INR PKR BDT LKR KRW TWD THB VND IDR MYR PHP
    PLN CZK HUF RON BGN SEK NOK DKK ISK RUB UAH TRY ILS AED SAR QAR KWD EGP ZAR NGN KES GHS MAD
    BRL MXN ARS CLP COP PEN UYU BTC ETH Euro Euros euro euros Dollar dollars dollar
    \u0440\u0443\u0431 \u0440\u0443\u0431. \u0440.
"""
CURRENCIES = frozenset(_MONEY.split())
# What a number is counted in; a word that is not here is one where most cells have it.
_MEASURES = """
    % ‰ pp bps ° °C °F °K µm µg µs μm μg μs ng mg g kg t lb lbs oz ton tons tonnes
    nm mm cm m km in ft yd mi mile miles m² m³ km² cm² cm³ mm² ha sqm sqft ft² ac acre acres
    ml cl dl l L hl gal bbl ns ms s sec secs second seconds min mins minute minutes
    h hr hrs hour hours Std d day days Tage week weeks wk mo month months yr yrs year years Jahre
    km/h kmh kph mph m/s kn knots rpm K C F W kW MW GW Wh kWh MWh GWh J kJ MJ cal kcal
    V mV kV A mA Ah mAh Hz kHz MHz GHz Ω kΩ N kN Nm Pa hPa kPa MPa bar mbar psi dB dBm ppm ppb
    mol mmol mmol/l mg/dl mg/l g/l g/cm³ kg/m³ U/l IU lx lm cd
    B KB kB MB GB TB PB KiB MiB GiB TiB bit kbit/s Mbit/s Gbit/s kbps Mbps Gbps MB/s px dpi
    pcs pc Stk Stück x hp PS bhp cc ccm kVA
"""
_UNITS = frozenset(_MEASURES.split())
_UNITS_FOLDED = frozenset(unit.casefold() for unit in _UNITS | CURRENCIES if len(unit) > 1)

# Words behind a number that multiply it. K, M and B are so only without a blank before them:
# 300 K are kelvins.
SCALES = {
    **dict.fromkeys(("k", "K", "thousand", "Tsd", "Tsd."), 1e3),
    **dict.fromkeys(("M", "MM", "mn", "mln", "mio", "Mio", "Mio.", "million", "millions"), 1e6),
    **dict.fromkeys(("B", "bn", "bln", "Mrd", "Mrd.", "billion", "billions"), 1e9),
    **dict.fromkeys(("lakh", "lakhs"), 1e5),
    **dict.fromkeys(("crore", "crores", "Cr"), 1e7),
}
# 10 am is a time, and 3rd a rank; 3 St are three pieces.
_TIMES = frozenset(("am", "pm", "a.m.", "p.m.", "uhr"))
_RANKS = frozenset(("st", "nd", "rd", "th"))
# Ways to write the same unit, in small letters.
_SAME = dict.fromkeys(("eur", "euro", "euros"), "€")
_SAME |= dict.fromkeys(("usd", "us$", "dollar", "dollars"), "$") | {"gbp": "£"}
_SAME |= dict.fromkeys(("stk.", "stück", "st", "st.", "pc", "pcs"), "stk")

_BLANK = f"[{BLANKS}]"
_SIGN = f"[{re.escape(SIGNS)}]"
ANY_PREFIX = "|".join(re.escape(word) for word in sorted(CURRENCIES, key=len, reverse=True))
ANY_SUFFIX = rf"[\p{{L}}\p{{Sc}}%\u2030°/²³.]{{1,12}}(?:{_BLANK}[\p{{L}}\p{{Sc}}.]{{1,8}})?"


def body_pattern(decimal: str) -> str:
    """Return the pattern of a number without sign and unit.

    Groups are of three digits behind one to three, the first of which is no zero, or of two digits
    before the last three, as in India (12,34,567). Only numbers without groups have exponents.

    Parameters
    ----------
    decimal
        The decimal mark, a point or a comma; the other one may separate groups.

    >>> import re
    >>> [bool(re.fullmatch(body_pattern("."), cell)) for cell in ("1,234.5", "1,2,3", "12,5")]
    [True, False, False]
    """
    mark = re.escape(decimal)
    other = "," if decimal == "." else r"\."
    marks = (other, "['\u2019]", _BLANK)
    groups = "|".join(f"(?:{each}[0-9]{{3}})+" for each in marks)
    indian = "|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}" if decimal == "." else ""
    grouped = f"(?:[1-9][0-9]{{0,2}}(?:{groups}){indian})(?:{mark}[0-9]+)?"
    return f"(?:{grouped}|(?:[0-9]+(?:{mark}[0-9]+)?|{mark}[0-9]+)(?:[eE][-+]?0?[0-9]{{1,2}})?)"


def cell_pattern(body: str, prefix: str = ANY_PREFIX, suffix: str = ANY_SUFFIX) -> str:
    """Return the pattern of a cell: a number with its signs, and what may stand around it."""
    before = f"(?:(?:{prefix}){_BLANK}*{_SIGN}?{_BLANK}*)?" if prefix else ""
    after = f"(?:(?:{suffix}){_BLANK}*)?" if suffix else ""
    minus = f"[{re.escape(MINUS)}]"
    return rf"^\(?{_SIGN}?{_BLANK}*{before}{body}{_BLANK}*{after}{minus}?\)?$"


def words_of(affix: str) -> list[str]:
    """Return the words before or behind a number, without blanks."""
    return re.split(f"{_BLANK}+", affix.strip(BLANKS)) if affix.strip(BLANKS) else []


def is_currency(word: str) -> bool:
    """Whether a word is a currency's sign, code or name."""
    return word in CURRENCIES


def scale_of(affix: str) -> float:
    """Return what the words behind a number multiply it by.

    >>> scale_of("k"), scale_of(" Mio. €"), scale_of(" k€"), scale_of(" K")
    (1000.0, 1000000.0, 1000.0, 1.0)
    """
    words = words_of(affix)
    apart = bool(affix) and affix[0] in BLANKS
    if not words or (apart and words[0] in ("K", "B")):
        return 1.0
    return SCALES.get(words[0].rstrip("€$£") or words[0], 1.0)


def unit_of(prefix: str, suffix: str) -> str:
    """Return what a number is counted in, in one writing and without what multiplies it.

    >>> unit_of("", " kg"), unit_of("USD ", "M"), unit_of("", "")
    ('kg', '$', '')
    """
    scaled = scale_of(suffix) != 1
    words = (word.casefold() for word in words_of(prefix) + words_of(suffix)[scaled:])
    return " ".join(_SAME.get(word, word) for word in words)


def is_moment_or_rank(affix: str) -> bool:
    """Whether what stands behind a number makes a time or a rank of it.

    >>> is_moment_or_rank(" pm"), is_moment_or_rank("st"), is_moment_or_rank(" St")
    (True, True, False)
    """
    return affix.strip(BLANKS).casefold() in _TIMES or affix.casefold() in _RANKS


def is_unit(affix: str) -> bool:
    """Whether what stands behind a number is known: nothing, a unit, a currency, a scale.

    >>> is_unit(" km/h"), is_unit(" Mio. €"), is_unit(" apples")
    (True, True, False)
    """
    words = words_of(affix)
    if scale_of(affix) != 1:
        words = words[1:]
    return all(
        word in CURRENCIES or word in _UNITS or word.rstrip(".").casefold() in _UNITS_FOLDED
        for word in words
    )
