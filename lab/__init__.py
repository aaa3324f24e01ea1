"""The laboratory: how we know that ``jbod_model`` is Kafka (lab/README.md). It is not part of the wheel."""
