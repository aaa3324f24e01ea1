"""A byte-exact copy of a quorum's committed log: a metadata.log.dir that every other part reads like one of Kafka."""
