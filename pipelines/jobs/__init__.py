"""Runs the jobs of a Databricks bundle on any machine: the same file, the same commands, the same order."""
