"""Where rows live (memory, Parquet files, a cluster, a device), and sums over blocks of them."""
