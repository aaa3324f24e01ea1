"""The jobs of a Databricks bundle, run on any machine: the same file, schedule, order, retries and timeouts."""
