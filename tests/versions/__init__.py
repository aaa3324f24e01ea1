"""The wheel beside PySpark 4.0, 4.1 and 4.2: what works in each, and how the rest is refused."""
