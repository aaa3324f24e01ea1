"""Which copies hold every acknowledged write, and when the last of them is given up (R-COPY-*, R-LOSS-*)."""
