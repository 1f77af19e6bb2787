"""The kinds of column that a table may have."""

from riskad.tables.kinds.base import register_kind
from riskad.tables.kinds.categories import CategoryColumn, PresenceColumn
from riskad.tables.kinds.images import ImageColumn
from riskad.tables.kinds.numbers import FlagColumn, MomentColumn, NumberColumn
from riskad.tables.kinds.texts import TextColumn

# The kind that is registered last is asked first. Any text can be a category.
register_kind(CategoryColumn, "category")
register_kind(PresenceColumn, "presence")
register_kind(TextColumn, "text")
register_kind(NumberColumn, "number")
register_kind(FlagColumn, "flag")
register_kind(MomentColumn, "date", "datetime", "time", "duration")
register_kind(ImageColumn, "image")
