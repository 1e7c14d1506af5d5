"""Differences of log-gamma functions without cancellation."""
