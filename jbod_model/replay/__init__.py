"""What records make of a cluster: registrations, partitions, offline replicas, history (R-REG-*, R-OFF-*)."""
