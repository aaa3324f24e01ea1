"""Metrics as Prometheus text, and alerts: findings sent to a webhook or a command."""
