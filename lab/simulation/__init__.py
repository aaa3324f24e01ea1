"""Simulates a cluster in one process: controller, brokers, disks, network and clock under one seeded scheduler."""
