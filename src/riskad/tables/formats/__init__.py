"""How cells are written: numbers, yes and no, dates and times."""
