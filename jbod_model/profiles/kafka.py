"""The rules of Kafka 4.1.2 to 4.4.0."""

from jbod_model.profiles.base import Profile
from jbod_model.profiles.broker_rules import KAFKA_BROKER
from jbod_model.profiles.controller_rules import KAFKA_RULES

KAFKA = Profile(
    name="kafka",
    absent_directories="migrating",
    empty_log_dirs_change="ignore",
    logical_rewrites=False,
    derives_offline_flag=False,
    offline_rule="kafka",
    controller=KAFKA_RULES,
    broker=KAFKA_BROKER,
)
