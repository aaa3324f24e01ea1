"""The generated parts of the documentation: ``python -m tests.docs --check`` or ``--write``."""
