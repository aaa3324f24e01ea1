"""Notebooks about the bundled log of a real cluster, and what runs them."""
