"""A column of a table as it was prepared: each kind reads, shows and explains itself."""
