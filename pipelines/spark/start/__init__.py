"""What makes a local Spark session start fast. Without any of it a session starts too, only later."""
