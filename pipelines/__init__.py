"""The engine: columnar decode and replay of metadata logs into Delta tables, and the questions asked of them."""
