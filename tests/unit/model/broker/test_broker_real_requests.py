"""The model of a broker against what real brokers sent: four clusters' request logs, request by request.

What happens outside of a broker (a disk fails, an operator stops it, the metadata is caught up) is read off the first
request that shows it. Everything else the model must say itself: which request comes next, when, and what is in it.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from jbod_model.broker import lifecycle
from jbod_model.broker.assignments import MAX_ASSIGNMENTS_PER_REQUEST
from jbod_model.broker.lifecycle import BrokerSurroundings, Lifecycle, LifecycleState, Shutdown
from jbod_model.formats.requests import BrokerHeartbeatRequest, BrokerRegistrationRequest
from jbod_model.formats.responses import BrokerHeartbeatResponse
from jbod_model.ids import Uuid
from jbod_model.storage.properties import read_meta_properties
from tests.support.paths import CLUSTERS
from tests.support.real_brokers import ALL, ASSIGNMENT, HEARTBEAT, REGISTRATION, Exchange, ids, processes

# The clusters ran with broker.heartbeat.interval.ms=1000.
INTERVAL_MS = 1_000
# From the controller's clock to the broker's and back, on a busy machine.
LATE_MS = 400


BROKERS = pytest.mark.parametrize(("cluster", "broker_id"), sorted(ALL), ids=lambda part: str(part))


def begin(first: Exchange) -> Lifecycle:
    request = first.request
    life = Lifecycle(
        node_id=request["brokerId"],
        cluster_id=request["clusterId"],
        incarnation_id=Uuid.parse(request["incarnationId"]),
        log_dirs=ids(request["logDirs"]),
        previous_epoch=request.get("previousBrokerEpoch", -1),
        heartbeat_interval=INTERVAL_MS,
    )
    life, (sent,) = lifecycle.start(life, first.arrived)
    assert sent == lifecycle.registration_request(life)
    assert isinstance(sent, BrokerRegistrationRequest)
    assert list(map(str, sent.log_dirs)) == request["logDirs"]
    return life


def with_what_happened(life: Lifecycle, next_one: Exchange) -> Lifecycle:
    """The events outside of the broker that the next request is the first to show."""
    request, now = next_one.request, next_one.arrived
    if next_one.key == REGISTRATION:
        return lifecycle.resend_registration(life, now) if life.registered else life
    if not request["wantFence"] and not life.ready_to_unfence:
        life = lifecycle.become_ready(life, now)
    known = {directory for directory, _ in life.offline}
    for directory in ids(request.get("offlineLogDirs", [])):
        if directory not in known:
            life = lifecycle.fail_directory(life, directory, now)
    if request["wantShutDown"] and life.state is LifecycleState.RUNNING:
        life, _ = lifecycle.begin_shutdown(life, now)
    return life


def silence(cluster: str, due: int) -> int:
    """How long after ``due`` nobody reached the controller: it restarted once, when a migration was finalised."""
    arrivals = [each.arrived for (name, _), sent in ALL.items() if name == cluster for each in sent]
    return min((arrived - due for arrived in arrivals if arrived >= due), default=0)


def answered(life: Lifecycle, exchange: Exchange) -> Lifecycle:
    response = exchange.response
    if exchange.key == REGISTRATION:
        epoch = response["brokerEpoch"] if response["errorCode"] == 0 else None
        return lifecycle.answer_registration(life, epoch, exchange.answered)
    answer = None
    if response["errorCode"] == 0:
        answer = BrokerHeartbeatResponse(
            is_caught_up=response["isCaughtUp"],
            is_fenced=response["isFenced"],
            in_controlled_shutdown=False,
            should_shut_down=response["shouldShutDown"],
        )
    life, actions = lifecycle.answer_heartbeat(life, answer, exchange.answered)
    assert not actions or (isinstance(actions[0], Shutdown) and response["shouldShutDown"])
    return life


@BROKERS
def test_broker_sends_what_real_brokers_sent_when_they_sent_it(cluster: str, broker_id: int) -> None:
    """R-LIFE-2, R-LIFE-3, R-LIFE-4, R-LIFE-5, R-LIFE-6, R-LIFE-10, R-IDENT-2, R-IDENT-3."""
    for sent in processes(ALL[cluster, broker_id]):
        talk = [each for each in sent if each.key != ASSIGNMENT]
        life = answered(begin(talk[0]), talk[0])
        for exchange in talk[1:]:
            life = with_what_happened(life, exchange)
            assert life.state is not LifecycleState.SHUTTING_DOWN, exchange
            assert life.next_communication is not None
            late = exchange.arrived - life.next_communication
            assert -20 <= late <= LATE_MS + silence(cluster, life.next_communication), (life.state, exchange)
            now = max(exchange.arrived, life.next_communication)
            around = BrokerSurroundings(metadata_offset=exchange.request.get("currentMetadataOffset", -1))
            life, (request,) = lifecycle.tick(life, around, now)
            if exchange.key == REGISTRATION:
                assert isinstance(request, BrokerRegistrationRequest)
                assert list(map(str, request.log_dirs)) == exchange.request["logDirs"]
            else:
                assert isinstance(request, BrokerHeartbeatRequest)
                assert (request.broker_epoch, request.want_fence, request.want_shut_down) == (
                    exchange.request["brokerEpoch"],
                    exchange.request["wantFence"],
                    exchange.request["wantShutDown"],
                )
                assert set(request.offline_log_dirs) == set(ids(exchange.request.get("offlineLogDirs", [])))
            life = answered(life, exchange)


@BROKERS
def test_real_assignments_are_one_request_at_a_time_within_the_limit(cluster: str, broker_id: int) -> None:
    """R-QUEUE-2, R-QUEUE-3, R-QUEUE-5: the next one comes after the answer, and not at once."""
    for sent in processes(ALL[cluster, broker_id]):
        requests = [each for each in sent if each.key == ASSIGNMENT]
        for exchange in requests:
            listed = [
                (topic["topicId"], partition["partitionIndex"])
                for directory in exchange.request["directories"]
                for topic in directory["topics"]
                for partition in topic["partitions"]
            ]
            assert 0 < len(listed) <= MAX_ASSIGNMENTS_PER_REQUEST
            assert len(listed) == len(set(listed))
        for before, after in pairwise(requests):
            assert after.arrived >= before.answered - 20


@pytest.mark.parametrize("cluster", sorted({cluster for cluster, _ in ALL}))
def test_real_registrations_list_the_ids_of_the_disks_sorted(cluster: str) -> None:
    """R-IDENT-1: every disk that was kept belongs to the broker that registered it last."""
    last: dict[Uuid, int] = {}
    for (name, broker_id), sent in ALL.items():
        for each in sent:
            if name == cluster and each.key == REGISTRATION:
                registered = ids(each.request["logDirs"])
                assert list(registered) == sorted(registered)
                last |= dict.fromkeys(registered, broker_id)
    for path in sorted((CLUSTERS / cluster / "disks").glob("*/meta.properties")):
        meta = read_meta_properties(str(path.parent))
        assert meta.directory_id is not None
        assert last[meta.directory_id] == meta.node_id


def test_request_logs_of_real_clusters_exist() -> None:
    assert len(ALL) >= 14
    assert sum(each.key == HEARTBEAT for sent in ALL.values() for each in sent) > 1_000
    assert any(each.request.get("offlineLogDirs") for sent in ALL.values() for each in sent)
