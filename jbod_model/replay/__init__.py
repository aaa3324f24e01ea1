"""What records make of a cluster: registrations, partitions, offline replicas, history."""
