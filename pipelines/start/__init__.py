"""Start-up tricks, which make a command answer sooner. Everything also works without them, only more slowly.

``spark.fast_start`` turns them off. docs/start-up.md says what each of them does and how much it saves.
"""
