"""Names of months and weekdays in English, German, French and Spanish."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["LANGUAGES", "MONTHS", "WEEKDAYS", "language_of", "month_name", "weekday_name"]

# The full name, then what it is shortened to; the first short form is the one that is shown.
_MONTHS = {
    "en": """January Jan; February Feb; March Mar; April Apr; May May; June Jun; July Jul;
        August Aug; September Sep Sept; October Oct; November Nov; December Dec""",
    "de": """Januar Jan Jän Jänner; Februar Feb Feber; März Mär Mrz Maerz; April Apr; Mai Mai;
        Juni Jun; Juli Jul; August Aug; September Sep Sept; Oktober Okt; November Nov;
        Dezember Dez""",
    "fr": """janvier janv jan; février févr fév fevrier fevr; mars mars; avril avr; mai mai;
        juin juin; juillet juil; août août aout; septembre sept; octobre oct; novembre nov;
        décembre déc decembre""",
    "es": """enero ene; febrero feb; marzo mar; abril abr; mayo may; junio jun; julio jul;
        agosto ago; septiembre sep sept setiembre; octubre oct; noviembre nov; diciembre dic""",
}
_WEEKDAYS = {
    "en": "Monday Mon; Tuesday Tue Tues; Wednesday Wed; Thursday Thu Thur Thurs; Friday Fri; "
    "Saturday Sat; Sunday Sun",
    "de": "Montag Mo; Dienstag Di; Mittwoch Mi; Donnerstag Do; Freitag Fr; Samstag Sa Sonnabend; "
    "Sonntag So",
    "fr": "lundi lun; mardi mar; mercredi mer; jeudi jeu; vendredi ven; samedi sam; dimanche dim",
    "es": "lunes lun; martes mar; miércoles mié miercoles mie; jueves jue; viernes vie; "
    "sábado sáb sabado sab; domingo dom",
}


def _table(names: dict[str, str]) -> dict[str, list[list[str]]]:
    return {
        language: [entry.split() for entry in text.split(";")] for language, text in names.items()
    }


_MONTH_TABLE, _WEEKDAY_TABLE = _table(_MONTHS), _table(_WEEKDAYS)


def _numbered(table: dict[str, list[list[str]]], first: int) -> dict[str, int]:
    return {
        name.lower(): number
        for entries in table.values()
        for number, entry in enumerate(entries, first)
        for name in entry
    }


LANGUAGES = tuple(_MONTH_TABLE)
MONTHS = _numbered(_MONTH_TABLE, 1)  # 'märz': 3; no spelling means two months
WEEKDAYS = _numbered(_WEEKDAY_TABLE, 0)  # 'monday': 0


def language_of(words: Collection[str]) -> tuple[str, bool]:
    """The language that spells most of these months so, and whether they are shortened.

    >>> language_of({"märz", "april"}), language_of({"mar", "may"})
    (('de', False), ('en', True))
    """
    known = {
        language: {name.lower() for entry in entries for name in entry}
        for language, entries in _MONTH_TABLE.items()
    }
    language = max(LANGUAGES, key=lambda each: len(known[each] & set(words)))
    full = {entry[0].lower() for entry in _MONTH_TABLE[language] if entry[0] != entry[1]}
    return language, not full & set(words)


def month_name(month: int, language: str, short: bool) -> str:
    """The name of month 1 to 12.

    >>> month_name(3, "de", False)
    'März'
    """
    return _MONTH_TABLE[language][month - 1][1 if short else 0]


def weekday_name(weekday: int, language: str, short: bool) -> str:
    """The name of weekday 0 (Monday) to 6.

    >>> weekday_name(3, "fr", True)
    'jeu'
    """
    return _WEEKDAY_TABLE[language][weekday][1 if short else 0]
