"""The rules of the accepted KIP-858, read literally."""

from jbod_model.profiles.base import Profile
from jbod_model.profiles.broker_rules import KIP858_BROKER
from jbod_model.profiles.controller_rules import KIP858_RULES

KIP858 = Profile(
    name="kip858",
    absent_directories="unassigned",
    empty_log_dirs_change="ignore",
    logical_rewrites=False,
    derives_offline_flag=False,
    offline_rule="kip858",
    controller=KIP858_RULES,
    broker=KIP858_BROKER,
)
