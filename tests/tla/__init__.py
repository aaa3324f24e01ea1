"""The TLA+ twin (tla/Jbod.tla) beside the explorer: `make tla`."""
