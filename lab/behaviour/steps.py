"""What a log comes to: the actions that wrote it, or the place where no action could have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jbod_model.controller.leader_updates import FENCE, UNFENCE
from jbod_model.formats import requests
from jbod_model.formats.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    VersionedRecord,
)
from jbod_model.formats.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action of the specification, with the records that it wrote."""

    kind: str
    from_offset: int
    records: tuple[VersionedRecord, ...]
    flaw: str | None = None
    """The names of the flaws of Kafka, or of the older rules, without which it would have written something else."""
    modelled: bool = True
    """Whether the specification says what such an action writes; of other records it says only what they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The place from which on the log is no behaviour of the specification."""

    offset: int
    """Of the first record that the nearest action would not have written; without one, of the first unexplained."""
    problem: str
    batch: tuple[int, int] | None = None
    """First and last offset of the batch."""
    written: tuple[VersionedRecord, ...] = ()
    """What the log has in place of what the nearest action would have written."""
    nearest: str | None = None
    """The action that would have written most of it."""
    expected: tuple[VersionedRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecidable:
    """The place from which on the log is newer than the specification."""

    offset: int
    problem: str


NAMES: dict[type[Request], str] = {
    requests.SessionExpired: "session expired",
    requests.UnregisterBrokerRequest: "broker unregistered",
    requests.UnregisterControllerRequest: "controller unregistered",
    requests.CreateTopicsRequest: "topics created",
    requests.CreatePartitionsRequest: "partitions added",
    requests.DeleteTopicsRequest: "topics deleted",
    requests.AlterPartitionReassignmentsRequest: "reassignment",
    requests.AssignReplicasToDirsRequest: "replicas assigned to directories",
    requests.IncrementalAlterConfigsRequest: "configuration changed",
    requests.UpdateFeaturesRequest: "features updated",
    requests.BalanceLeaders: "leaders balanced",
    requests.ElectUncleanLeaders: "unclean leaders elected",
}


def kind_of(request: Request, records: Iterable[VersionedRecord]) -> str:
    """What to call the action, by what its records say it did (R-BEHAVE-6)."""
    if isinstance(request, requests.BrokerHeartbeatRequest):
        return f"heartbeat: {', '.join(dict.fromkeys(_changes(records))) or 'shutdown'}"
    if isinstance(request, requests.BrokerRegistrationRequest):
        restarted = any(not isinstance(versioned.record, RegisterBrokerRecord) for versioned in records)
        return "registration after a session" if restarted else "registration"
    if isinstance(request, requests.AlterPartitionRequest):
        completed = any(
            isinstance(versioned.record, PartitionChangeRecord) and versioned.record.replicas for versioned in records
        )
        return "in-sync sets changed, reassignment complete" if completed else "in-sync sets changed"
    if isinstance(request, requests.ElectLeadersRequest):
        preferred = request.election_type == requests.PREFERRED_ELECTION
        return f"{'preferred' if preferred else 'unclean'} leaders elected on request"
    return NAMES[type(request)]


def _changes(records: Iterable[VersionedRecord]) -> Iterable[str]:
    for versioned in records:
        record = versioned.record
        if not isinstance(record, BrokerRegistrationChangeRecord):
            continue
        if record.fenced:
            yield {FENCE: "fenced", UNFENCE: "unfenced"}[record.fenced]
        elif record.in_controlled_shutdown:
            yield "shutdown"
        elif record.cordoned_log_dirs is not None:
            yield "directories cordoned"
        else:
            yield "directories failed"
