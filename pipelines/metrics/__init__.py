"""Metrics as Prometheus text, with rules and a dashboard."""
