"""The Spark data sources."""
