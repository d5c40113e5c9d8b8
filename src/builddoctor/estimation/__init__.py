"""How much memory a phase takes and how long it runs: features, past, priors, and how wrong guesses have been. Pure."""
