"""The state machine: the fold kernel and the stateful processor around it."""
