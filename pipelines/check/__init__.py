"""Checks: they report what is wrong with a cluster's disks."""
