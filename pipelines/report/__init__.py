"""The report: one page that holds everything it shows, made from a lake without a JVM."""
