"""Results of compiler phases, kept for the next build: by what a phase reads, and by its program."""
