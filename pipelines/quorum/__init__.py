"""A quorum of controllers as a source: a client without I/O in its core, and what asks and follows over a network."""

KAFKA = "kafka://"
"""What the URL of a quorum, or of brokers, begins with."""
