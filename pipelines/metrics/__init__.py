"""What a monitor reads and what it is told: Prometheus text, and findings sent to a webhook or a command."""
