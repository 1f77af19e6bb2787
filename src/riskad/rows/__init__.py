"""Where rows live (memory, Parquet files, a cluster, a device), and sums over blocks of them."""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
