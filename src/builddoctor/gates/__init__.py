"""Overlay, gates, guardian and protocol: the only place that starts or signals a process."""
