"""Helpers that tests share: readers, lakes, clusters and other engines."""
