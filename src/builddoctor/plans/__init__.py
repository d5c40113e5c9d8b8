"""What a recipe means for one machine: window, threads, order, stages, and how long it takes. Computed by simulation."""
