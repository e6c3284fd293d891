"""Facts of the machine, and the one place that imports MLX after loading the BLAS it will use. Decides nothing."""
