"""Experiments: what is run is described in TOML, records are kept for good, tables follow.

    riskad bench shallow        the paper's shallow tables, recomputed beside the published numbers
    riskad bench deep           the paper's deep experiments, on images
    riskad bench run FILE.toml  an experiment of your own
    riskad bench report FOLDER  the tables and figures once more, from the records

`experiment` says what a description may hold, `trial` runs one cell of it, `images` many cells in
one training, `records` keeps what came out, `runner` does all cells and resumes, `summary` and
`render` make tables.
"""
