"""Start-up tricks, which make a command answer sooner. Everything also works without them, only more slowly.

``spark.fast_start`` turns them off. docs/architecture.md says what each does, benchmarks/README.md what it saves.
"""
