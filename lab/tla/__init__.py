"""The TLA+ twin (lab/tla/Jbod.tla) beside the explorer: `make tla`."""
