"""The scheduler on a virtual clock: measured, traced and generated builds, and how other schedulers would do them."""
