"""Start-up tricks: what makes a command answer sooner. With all of them off everything works, only later.

``spark.fast_start`` turns them off; docs/start-up.md says what each does and how much it saves.
"""
