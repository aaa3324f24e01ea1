"""The switches in which the rules of Kafka, of KIP-858 and of its drafts differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jbod_model.profiles.broker_rules import BrokerRules
from jbod_model.profiles.controller_rules import ControllerRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Named switches.

    The meaning of reserved ids is not among them: it belongs to the log (``jbod_model.ids.IdTable``).
    """

    name: str

    # REPLAY

    absent_directories: Literal["migrating", "unassigned"]
    """The id of every replica of a partition whose record names no directories (R-PART-3)."""
    empty_log_dirs_change: Literal["ignore", "apply"]
    """The effect of an empty LogDirs in a BrokerRegistrationChangeRecord (R-BROKER-6)."""
    logical_rewrites: bool
    """Whether a registration rewrites the directories of the broker's partitions without records (R-DRAFT-1,
    R-DRAFT-2)."""
    derives_offline_flag: bool
    """Whether a change that removes directories from a registration sets the draft's flag (R-DRAFT-6)."""

    # DERIVED

    offline_rule: Literal["kafka", "kip858", "draft"]
    """When the directory of a replica counts as offline (Kafka: R-OFF-7, the KIP: R-OFF-8, the draft: R-OFF-9)."""

    # CONTROLLER

    controller: ControllerRules
    """The rules of the controller."""

    # BROKER

    broker: BrokerRules
    """The rules of the broker."""
