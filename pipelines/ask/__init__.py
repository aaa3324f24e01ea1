"""Questions answered from a lake without a JVM."""
