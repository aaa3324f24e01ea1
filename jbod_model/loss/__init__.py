"""Which copies hold every acknowledged write, and when the last of them is given up (docs/spec/loss.md)."""
