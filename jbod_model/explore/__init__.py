"""Every behaviour of a small cluster, as far as a bound, checked against the invariants (docs/spec/simulation.md)."""
