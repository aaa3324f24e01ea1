"""The effect of records on a cluster: registrations, partitions, offline replicas, history."""
