"""The reference controller answers a logged stream of requests and writes a metadata log."""
