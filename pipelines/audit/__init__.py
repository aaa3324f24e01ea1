"""The audit of a controller as a command and as the table ``audit``; the rules are in ``jbod_model.audit``."""
