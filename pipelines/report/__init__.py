"""The report: one self-contained page, made from a lake without a JVM."""
