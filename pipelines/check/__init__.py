"""Checks: what is wrong with a cluster's disks, told before anybody asks."""
