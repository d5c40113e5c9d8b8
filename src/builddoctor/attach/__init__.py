"""A build that was started without us, seen from outside: what runs, how far it is, whether it hangs."""
