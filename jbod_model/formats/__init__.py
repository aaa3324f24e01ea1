"""Kafka's bytes: records, batches, control records, requests and responses, request logs (docs/spec/formats.md)."""
