"""The rules of earlier drafts of KIP-858: registrations with an offline flag, rewrites without records."""

from jbod_model.profiles.base import Profile
from jbod_model.profiles.broker_rules import DRAFT_BROKER
from jbod_model.profiles.controller_rules import DRAFT_RULES

DRAFT = Profile(
    name="draft",
    absent_directories="unassigned",
    empty_log_dirs_change="apply",
    logical_rewrites=True,
    derives_offline_flag=True,
    offline_rule="draft",
    controller=DRAFT_RULES,
    broker=DRAFT_BROKER,
)
