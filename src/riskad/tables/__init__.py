"""What a person's table holds: reading, kinds of column, summaries over all rows, preparation."""
