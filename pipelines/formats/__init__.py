"""Kafka's formats in columns: batches, records, snapshots."""
