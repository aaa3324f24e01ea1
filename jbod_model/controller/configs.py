"""Handles changes of the configuration that elections depend on (docs/spec/controller.md).

Source: Kafka's ``ConfigurationControlManager``. Only values that affect elections are validated.
"""

from __future__ import annotations

from collections.abc import Iterable

from jbod_model.controller.cluster import MIN_ISR, UNCLEAN_ELECTION, Cluster, is_number
from jbod_model.controller.context import Result
from jbod_model.formats.kafka_errors import InvalidConfig, InvalidRequest, RequestRefused, UnknownTopicOrPartition
from jbod_model.formats.records import ClearElrRecord, ConfigRecord, VersionedRecord
from jbod_model.formats.requests import (
    BROKER_RESOURCE,
    CONFIG_DELETE,
    CONFIG_SET,
    TOPIC_RESOURCE,
    AlterConfigsResource,
    CreatableTopic,
    IncrementalAlterConfigsRequest,
)
from jbod_model.formats.responses import AlterConfigsResult, IncrementalAlterConfigsResponse
from jbod_model.java import hash_order, string_hash

LONGEST_VALUE = 32_767


def alter_configs(cluster: Cluster, request: IncrementalAlterConfigsRequest) -> Result:
    """Change each resource whose changes are all allowed. A new minimum in-sync size clears ELRs (R-CFG-4)."""
    records: list[VersionedRecord] = []
    results: list[AlterConfigsResult] = []
    for resource in request.resources:
        code, message = 0, None
        try:
            records += _changes(cluster, resource)
        except RequestRefused as refused:
            code, message = refused.code.value, refused.problem
        results.append(
            AlterConfigsResult(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_code=code,
                error_message=message,
            )
        )
    records += clear_elr_records(cluster, records)
    return Result(
        records=() if request.validate_only else tuple(records),
        response=IncrementalAlterConfigsResponse(responses=tuple(results)),
    )


def new_topic_configs(cluster: Cluster, topic: CreatableTopic) -> list[VersionedRecord]:
    """The configuration records of a new topic, in Kafka's order (R-CREATE-8)."""
    values: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"configuration {config.name} of topic {topic.name} has no value")
        values[config.name] = config.value
    records = [
        _checked(
            cluster, ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=values[name])
        )
        for name in hash_order(values, string_hash)
    ]
    return [*records, *clear_elr_records(cluster, records)]


def clear_elr_records(cluster: Cluster, records: Iterable[VersionedRecord]) -> list[VersionedRecord]:
    """If eligible leader replicas are on, one ClearElrRecord for each change of the minimum in-sync size (R-CFG-4)."""
    if not cluster.elr_enabled:
        return []
    cleared = []
    for versioned in records:
        record = versioned.record
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR:
            topic_name = record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
            cleared.append(VersionedRecord(ClearElrRecord(topic_name=topic_name), 0))
    return cleared


def _changes(cluster: Cluster, resource: AlterConfigsResource) -> list[VersionedRecord]:
    """The records of one resource. An unchanged value is written only for brokers, which then reload it (R-CFG-5)."""
    if resource.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE):
        raise InvalidRequest(f"resource type {resource.resource_type} is neither a topic (2) nor a broker (4)")
    present = cluster.image.configs.get((resource.resource_type, resource.resource_name), {})
    records: list[VersionedRecord] = []
    for config in resource.configs:
        if config.config_operation not in (CONFIG_SET, CONFIG_DELETE):
            raise InvalidConfig(f"{config.name} is not a list: use operation 0 (set) or 1 (delete)")
        value = config.value if config.config_operation == CONFIG_SET else None
        if value == present.get(config.name) and resource.resource_type != BROKER_RESOURCE:
            continue
        record = ConfigRecord(
            resource_type=resource.resource_type, resource_name=resource.resource_name, name=config.name, value=value
        )
        records.append(_checked(cluster, record))
    if resource.resource_type == TOPIC_RESOURCE and cluster.image.topic(resource.resource_name) is None:
        raise UnknownTopicOrPartition(f"there is no topic {resource.resource_name}")
    return records


def _checked(cluster: Cluster, record: ConfigRecord) -> VersionedRecord:
    """The record of a change. Raises for the changes that are not allowed (R-CFG-2, R-CFG-6)."""
    if record.name == MIN_ISR and record.resource_type == BROKER_RESOURCE and cluster.elr_enabled:
        if record.resource_name:
            raise InvalidConfig(f"{MIN_ISR} of one broker cannot change while eligible leader replicas are on")
        if record.value is None:
            raise InvalidConfig(f"{MIN_ISR} of all brokers cannot be removed while eligible leader replicas are on")
    if record.value is not None and record.resource_type == TOPIC_RESOURCE:
        if record.name == MIN_ISR and not (is_number(record.value) and int(record.value) > 0):
            raise InvalidConfig(f"{MIN_ISR} is {record.value!r:.40}; use a number from 1 on")
        if record.name == UNCLEAN_ELECTION and record.value.strip().lower() not in ("true", "false"):
            raise InvalidConfig(f"{UNCLEAN_ELECTION} is {record.value!r:.40}; use true or false")
    if record.value is not None and len(record.value) > LONGEST_VALUE:
        raise InvalidConfig(f"the value of {record.name} has {len(record.value)} characters; at most {LONGEST_VALUE}")
    return VersionedRecord(record, 0)
