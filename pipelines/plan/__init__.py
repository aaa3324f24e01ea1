"""Plans of moves: what is to be executed so that a disk is empty, a new one is used, or a cluster is even.

A ``Problem`` has the replicas and disks as columns, a ``Goal`` says what one command wants. One solver chooses the
targets, one sequencer puts the moves into steps, the reference controller judges them, one module makes the files.
"""
