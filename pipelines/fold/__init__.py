"""The fold: records to rows, pure. It knows neither Spark nor a lake's files."""
