"""The main job on a real Spark standalone cluster, whose executors and workers are killed."""
