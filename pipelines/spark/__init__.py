"""The Spark session that jbod makes."""
