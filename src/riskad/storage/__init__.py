"""How things are written down: checked plain values, bounded archives, files that appear whole."""
