"""The main job: a log into a lake, by Spark or in this process."""
