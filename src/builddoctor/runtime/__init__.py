"""One supervised build: gates, sampler, scheduler and log, connected in the only event loop."""
