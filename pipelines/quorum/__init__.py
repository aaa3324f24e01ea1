"""A quorum of controllers as a source: a client without I/O in its core, and what asks and follows over a network."""
