"""The command line: a module per group of commands; ``main`` runs them."""
