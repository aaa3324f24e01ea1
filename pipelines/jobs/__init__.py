"""Runs the jobs of a Databricks bundle on any machine, with the same file, schedule, order, retries and timeouts."""
