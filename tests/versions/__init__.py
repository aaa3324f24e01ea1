"""The wheel beside PySpark 4.0 to 4.3: what works in each, and how the rest is refused."""
