"""Logs and lakes on a real S3 server: ``make s3``."""
