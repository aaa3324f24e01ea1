"""What happens at a broker's next start if a directory does not come back as it was.

The model's broker, controller and loss rules play the start (``jbod_model.next_start``). Only the partitions that the
start can matter to are asked about: those with a replica in the directory, those that have no complete copy in use
besides the broker's own, and those of any brokers that have no leader: they hold an election when the broker is back
(R-RESTART-3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Literal, TypeVar

from jbod_model.controller.cluster import MIN_ISR
from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import ELR_FEATURE
from jbod_model.ids import Uuid
from jbod_model.loss.copies import Loss
from jbod_model.loss.fate import Fate, is_online
from jbod_model.next_start import BLANK, Key, NextStart, ReportTime, Started, start
from jbod_model.profiles import PROFILES
from jbod_model.replay.image import Image
from pipelines.ask.advice import Advice, Advised, bring_home
from pipelines.ask.advice_last_copies import add_replica, keep_in_use, start_holder, wait_until_in_sync
from pipelines.ask.configs import tiered_topics
from pipelines.ask.json_values import DatedAnswer, NamedPartition
from pipelines.ask.loss import followed
from pipelines.ask.lost_data import Losses, losses
from pipelines.ask.removal import needing
from pipelines.ask.starting import lost_directories
from pipelines.ask.whatif_places import as_repaired, find_place, image_of, metadata_directories, with_partition_0
from pipelines.lake.reader import Lake

_uuid = cache(Uuid.parse)
_Thing = TypeVar("_Thing")

How = Literal["back", "blank", "gone", "broken"]
"""What becomes of a directory: it comes back with its id; a blank disk takes its place; it is taken out of log.dirs; it
stays in log.dirs, and cannot be read."""
HOWS: Sequence[How] = ("back", "blank", "gone", "broken")


@dataclass(frozen=True)
class GivenUp(NamedPartition):
    """A partition whose last complete copy is given up."""

    kind: str
    """lost, may lack writes or unreachable."""
    leader: int | None
    """The broker that leads without the data; None if there is no leader."""
    tiered: bool
    """Whether only the local part is at stake, which was not copied to remote storage yet."""
    also_in_json = ("name",)


@dataclass(frozen=True)
class StartOutcome:
    """What one start does, in any of the ways that no record tells apart. Partitions by name.

    The last process was shut down in order or not; the next one reports its directories before it registers, before it
    is unfenced, or later: then a partition without a leader has none until a broker is unfenced again.
    """

    back: Sequence[str]
    """Directories that come back with their ids."""
    blank: Sequence[str]
    gone: Sequence[str]
    broken: Sequence[str]
    refused: str
    """Why the broker does not start; empty if it does."""
    recreated: Sequence[str]
    """Partitions whose replica the broker creates empty."""
    perhaps_recreated: Sequence[str]
    """Those among them whose log may be in another directory: no record says where it lies."""
    leads: Sequence[str]
    """Partitions that the broker leads afterwards, and does not lead now."""
    perhaps_leads: Sequence[str]
    """Those among them that it leads in some of the ways only."""
    leads_empty: Sequence[str]
    """Partitions that it leads with a log that it created empty."""
    without_leader: Sequence[str]
    """Partitions of the broker without a leader afterwards."""
    perhaps_without_leader: Sequence[str]
    """Those among them that are without a leader in some of the ways only."""
    gives_up: Sequence[GivenUp]
    """Partitions whose last complete copy is given up."""
    perhaps_gives_up: Sequence[str]
    """Those among them of which it is given up in some of the ways only."""
    needed: Sequence[str]
    """Further partitions that may need what is on a disk which a blank one replaces: the only holder of writes that are
    lost, or an older copy while no complete one is in use."""
    needed_on: Sequence[str]
    """The directories of these disks."""
    two_folders: Sequence[str]
    """Partitions that were recreated in another directory of the broker while a directory that comes back was away: one
    of the two folders has to leave before the start."""

    @property
    def leaderless(self) -> Sequence[str]:
        """Partitions of the broker without a leader in all of the ways."""
        return sorted({*self.without_leader} - {*self.perhaps_without_leader})


@dataclass(frozen=True)
class NextStarts(DatedAnswer, Advised):
    """The answer."""

    broker_id: int
    broker: str
    """online, fenced or missing."""
    away: Sequence[str]
    """Directories that the broker does not list, and that may have replicas or that its last process lost."""
    starts: Sequence[StartOutcome]
    """If directories were named: the start with them blank or gone. Else what becomes of ``away``: it comes back, comes
    back blank, is taken out of log.dirs, stays broken. Empty if no directory is away."""
    steps: Sequence[Advice]
    """What to do before the start, in order. Empty if no start gives anything up."""
    fault: str = ""
    """Defects that Kafka's controller (4.1) would meet. The answer is that of a repaired controller. Usually empty."""
    also_in_json = ("gives_up",)

    @property
    def gives_up(self) -> Sequence[str]:
        """The partitions whose last complete copy one of the starts gives up."""
        return sorted({partition.name for start in self.starts for partition in start.gives_up})


def next_starts(
    lake: Lake,
    broker: int,
    *,
    blank: Sequence[str] = (),
    gone: Sequence[str] = (),
    default_min_isr: int = 1,
    data: Losses | None = None,
) -> NextStarts:
    """What the next start of a broker does to its partitions, by what becomes of its directories.

    ``blank`` and ``gone`` name directories of the broker by their ids, the beginning of one, a path or a label. Without
    them the directories in question are those that the broker does not list. A directory that it does not list, and
    that is not named, counts as taken out of log.dirs, because then its replicas are recreated, too. ``data``: what
    ``losses`` says, if it was asked already. Raises UsageError if the broker or a directory does not exist,
    or one is named in both.
    """
    ways: Sequence[tuple[How, Sequence[str]]] = (("blank", blank), ("gone", gone))
    named: dict[str, How] = {}
    for how, texts in ways:
        for text in texts:
            directory = find_place(lake, f"{broker}:{text}").directory_id or ""
            if named.setdefault(directory, how) != how:
                raise UsageError(f"{directory}: --blank and --gone: give one of them")
    data = data or losses(lake, default_min_isr)
    disks = _disks(lake, broker, data)
    choices: list[Mapping[str, How]]
    if named:
        choices = [{**dict.fromkeys(disks.away, "gone"), **named}]
    else:
        choices = [dict.fromkeys(disks.away, how) for how in HOWS] if disks.away else []
    if not choices:
        return NextStarts(lake.offset, lake.time, broker, disks.state, disks.away, (), ())
    player = _player(lake, broker, {*disks.away, *named}, disks, default_min_isr)
    outcomes = [player.outcome(choice, data) for choice in choices]
    steps = _steps(player, data, disks, outcomes, named)
    return NextStarts(lake.offset, lake.time, broker, disks.state, disks.away, outcomes, steps, player.fault)


def starts_of(
    lake: Lake, brokers: Sequence[int], default_min_isr: int = 1, accepted_until: int = -1
) -> list[NextStarts]:
    """The same for each of several brokers."""
    if not brokers:
        return []
    data = losses(lake, default_min_isr, accepted_until)
    return [next_starts(lake, broker, default_min_isr=default_min_isr, data=data) for broker in brokers]


# DISKS


@dataclass(frozen=True)
class _Disks:
    """What the log says about a broker's directories."""

    state: str
    """online, fenced or missing."""
    listed: Sequence[str]
    """The directories in its registration."""
    away: Sequence[str]
    """Further directories that may have replicas, or that its last process lost. All, if it is not registered."""
    in_order: bool | None
    """Whether its last process was shut down in order. None: it is not known, or it runs."""

    @property
    def running(self) -> bool:
        return self.state == "online"


def _disks(lake: Lake, broker: int, data: Losses) -> _Disks:
    rows = lake.query(
        f"""
        SELECT log_dirs, fenced, in_controlled_shutdown, to_offset IS NULL FROM {lake.until("brokers")}
        WHERE broker_id = {int(broker)} ORDER BY from_offset DESC LIMIT 1
        """
    )
    if not rows:
        find_place(lake, str(broker))  # raises UsageError with the names of the brokers
    ((listed, fenced, stopping, registered),) = rows
    assigned = lake.query(
        f"SELECT DISTINCT directory_id FROM {lake.at('assignments')} WHERE broker_id = {int(broker)} "
        "AND kind = 'assigned'"
    )
    known = {directory for (directory,) in assigned} | {*data.last_copies.away.get(broker, {})} - {""}
    known |= lost_directories(lake).get(broker, set())
    state = "missing" if not registered else "fenced" if fenced else "online"
    if not registered:
        return _Disks(state, (), sorted(known | {*listed}), None)
    return _Disks(state, listed, sorted(known - {*listed}), True if fenced and stopping else None)


# PLAY


@dataclass
class _Player:
    """Plays starts of a broker on the part of the lake that its directories matter to."""

    lake: Lake
    broker: int
    disks: _Disks
    image: Image
    fates: Mapping[Key, Fate]
    static: Mapping[str, str]
    tiered: frozenset[str]
    fault: str = ""

    def outcome(self, choice: Mapping[str, How], data: Losses) -> StartOutcome:
        """What a start does, if each directory of ``choice`` becomes what it says there."""

        def become(wanted: How) -> list[str]:
            return [directory for directory, how in choice.items() if how == wanted]

        ways = self._starts(choice)
        played = [self._play(how) for how in ways]
        if any(played_start.reported for played_start in played):
            others = [ReportTime.LATE] if self.disks.state == "missing" else [ReportTime.LATE, ReportTime.EARLY]
            played += [self._play(replace(how, reports=report_time)) for report_time in others for how in ways]
        first = played[0]
        lost = [{partition.name: partition for partition in self._given_up(started)} for started in played]
        for topic, number in chain(*data.last_copies.moved_here(self.broker, become("blank")).values()):
            loss = GivenUp(topic, number, "lost", None, topic in self.tiered)
            lost = [{**partitions, loss.name: loss} for partitions in lost]
        led = [{*self._led(started)} - {*self._led(None)} for started in played]
        back = become("back")
        needed = {
            directory: needing(self.lake, self.broker, directory, data).difference(*lost)
            for directory in become("blank")
        }
        twice = sorted({name for directory in back for name in data.last_copies.twice(self.broker, directory)})
        without = [
            {key for key, leader in _leaders(started.image) if leader < 0 and self.has_replica(key)}
            for started in played
        ]

        return StartOutcome(
            back=become("back"),
            blank=become("blank"),
            gone=become("gone"),
            broken=become("broken"),
            refused=first.refused or self._without_metadata(choice),
            recreated=self._names(first.recreated),
            perhaps_recreated=self._names(first.perhaps),
            leads=self._names(set().union(*led)),
            perhaps_leads=self._names(_in_some(led)),
            leads_empty=self._names(key for started in played for key in {*self._led(started)} & started.recreated),
            without_leader=self._names(set().union(*without)),
            perhaps_without_leader=self._names(_in_some(without)),
            gives_up=sorted(
                {name: partition for names in lost for name, partition in names.items()}.values(),
                key=lambda partition: (partition.topic, partition.partition),
            ),
            perhaps_gives_up=sorted(_in_some([{*names} for names in lost])),
            needed=sorted(set().union(*needed.values())),
            needed_on=[directory for directory, names in needed.items() if names],
            two_folders=twice,
        )

    def _without_metadata(self, choice: Mapping[str, How]) -> str:
        """Why a node without the directory of its metadata log does not start (R-STORE-13); empty if it has it."""
        directory = metadata_directories(self.lake).get(self.broker, "")
        there = choice.get(directory, "back") == "back"
        return "" if there else f"{directory} has the metadata log of node {self.broker}"

    def _starts(self, choice: Mapping[str, How]) -> list[NextStart]:
        """The start; both ways if no record tells whether the disks have the mark of a shutdown in order."""
        blank = [Uuid(BLANK, 2 + number) for number, how in enumerate(choice.values()) if how == "blank"]
        kept = [directory for directory in self.disks.listed if choice.get(directory, "back") == "back"]
        back = [directory for directory, how in choice.items() if how == "back" and directory not in kept]
        has_offline = "broken" in choice.values()
        marked = not blank and not back and not has_offline
        known = self.disks.running or self.disks.in_order or not self.image.features.get(ELR_FEATURE)
        return [
            NextStart(
                broker_id=self.broker,
                directories=(*map(_uuid, [*kept, *back]), *blank),
                has_offline=has_offline,
                clean=clean,
                was_stopped=bool(self.disks.in_order),
            )
            for clean in ([False] if not marked else [True] if known else [True, False])
        ]

    def _play(self, how: NextStart) -> Started:
        offset = self.lake.offset + 1
        started, fault = as_repaired(
            lambda rules: start(self.image, self.fates, how, offset=offset, profile=rules, static_configs=self.static),
            PROFILES[self.lake.published.profile],
        )
        self.fault = fault or self.fault
        return started

    def _given_up(self, started: Started) -> Iterable[GivenUp]:
        for (topic_id, number), fate in started.fates.items():
            before = {_seen(loss) for loss in self.fates[topic_id, number].losses}
            recreated = (topic_id, number) in started.recreated
            for loss in fate.losses:
                if _seen(loss) not in before and loss.until is None and (recreated or not _unflushed(loss)):
                    topic = self.image.topics[topic_id].name
                    yield GivenUp(topic, number, loss.kind, loss.leader, topic in self.tiered)

    def _led(self, started: Started | None) -> Iterable[Key]:
        image = self.image if started is None else started.image
        return (key for key, leader in _leaders(image) if leader == self.broker)

    def has_replica(self, key: Key) -> bool:
        """Whether the broker has a replica of the partition."""
        return self.broker in self.image.topics[key[0]].partitions[key[1]].replicas

    def _names(self, keys: Iterable[Key]) -> list[str]:
        return [f"{topic}-{number}" for topic, number in sorted({(self.topic(key), key[1]) for key in keys})]

    def topic(self, key: Key) -> str:
        """The topic's name."""
        return self.image.topics[key[0]].name


def _in_some(ways: Sequence[set[_Thing]]) -> set[_Thing]:
    """What is in some of the ways only."""
    return set[_Thing]().union(*ways) - ways[0].intersection(*ways)


def _leaders(image: Image) -> Iterable[tuple[Key, int]]:
    for topic_id, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            yield (topic_id, number), partition.leader


def _seen(loss: Loss) -> tuple[int, str, bool]:
    return loss.offset, loss.kind, loss.went_on is not None


def _unflushed(loss: Loss) -> bool:
    """Whether the leader's own copy was the last one: it may lack what its broker had not flushed, whatever the disks
    of the start are."""
    return [copy.broker_id for copy in loss.copies] == [loss.leader] and loss.copies[0].given_up is None


def _player(lake: Lake, broker: int, directories: Iterable[str], disks: _Disks, default_min_isr: int) -> _Player:
    table = f"next_start_{lake.offset}_{broker}"
    lake.query(f"CREATE OR REPLACE TEMP TABLE {table} AS {_wanted(lake, broker, directories)}")
    alone = f"SELECT topic_id, partition FROM {table} WHERE alone"
    image = with_partition_0(image_of(lake, f"(topic_id, partition) IN (SELECT (topic_id, partition) FROM {table})"))
    keys = {(topic_id, number) for topic_id, topic in image.topics.items() for number in topic.partitions}
    shapes = (
        ((_uuid(partition.topic_id), partition.partition), partition.shape)
        for partition in followed(lake, default_min_isr, alone)
    )
    fates = {key: fate for key, fate in shapes if key in keys}
    static = {MIN_ISR: str(default_min_isr)}
    return _Player(lake, broker, disks, image, fates, static, tiered_topics(lake))


def _wanted(lake: Lake, broker: int, directories: Iterable[str]) -> str:
    """SQL: topic_id, partition and alone of the partitions that the start matters to. ``alone``: no other replica that
    is in sync or eligible is online."""
    ids = ", ".join(f"'{directory}'" for directory in sorted(directories))
    return f"""
        WITH o AS {lake.offline_brokers()}, p AS (
            SELECT p.topic_id, p.partition, a.kind, a.directory_id,
                   len(list_filter(list_concat(p.isr, p.elr), lambda b: b <> {int(broker)}
                       AND NOT list_contains(coalesce(o.down, []), b))) = 0 AS alone
            FROM {lake.at("partitions")} p
            JOIN {lake.at("assignments")} a ON a.topic_id = p.topic_id AND a.partition = p.partition
                 AND a.broker_id = {int(broker)}
            LEFT JOIN o ON o.topic_id = p.topic_id AND o.partition = p.partition
        )
        SELECT topic_id, partition, alone FROM p
        WHERE alone OR kind <> 'assigned' OR directory_id IN ({ids or "NULL"})
        UNION ALL
        SELECT p.topic_id, p.partition, true FROM {lake.at("partitions")} p
        LEFT JOIN o ON o.topic_id = p.topic_id AND o.partition = p.partition
        WHERE p.leader < 0 AND NOT list_contains(p.replicas, {int(broker)})
            AND (len(coalesce(o.down, [])) < len(p.replicas) OR len(p.last_known_elr) > 0)
    """


# STEPS


def _steps(
    player: _Player, data: Losses, disks: _Disks, outcomes: Sequence[StartOutcome], named: Mapping[str, How]
) -> list[Advice]:
    """What has to come before the start: what saves the last copies that are offline, then those in use."""
    last, broker = data.last_copies, player.broker
    given_up = {partition.name for outcome in outcomes for partition in outcome.gives_up}
    if not given_up:
        return []
    steps = {
        "online": lambda: last.steps(broker, running=True) or [*last.before_start(broker, running=True)],
        "fenced": lambda: last.about_fenced(broker, in_order=bool(disks.in_order)),
        "missing": lambda: last.about_missing(broker),
    }[disks.state]()
    of_steps = {name for step in steps if step.forbidden for name in step.cost}
    for home, partitions in last.moved_here(broker, [name for name, how in named.items() if how == "blank"]).items():
        names = [f"{topic}-{number}" for topic, number in partitions]
        steps += bring_home(home, names)
        of_steps |= {*names}
    rest = given_up - of_steps
    there = [directory for directory in named if directory in disks.listed]
    return [*steps, *_save(player, rest, there)] if rest else steps


def _save(player: _Player, names: Collection[str], directories: Sequence[str]) -> Iterator[Advice]:
    """What keeps another complete copy of the partitions, or brings it into use; then what has to wait for it."""
    catching_up: dict[int, list[str]] = {}
    offline: dict[int, list[str]] = {}
    here: list[str] = []
    single: list[str] = []
    for key, fate in player.fates.items():
        name = f"{player.topic(key)}-{key[1]}"
        if name not in names:
            continue
        others = [copy for copy in fate.copies.values() if copy.broker_id != player.broker]
        if player.has_replica(key):
            here.append(name)
            single += [] if others else [name]
        for copy in others:
            if not is_online(fate, copy):
                if copy.usable:
                    offline.setdefault(copy.broker_id, []).append(name)
            elif player.has_replica(key):
                catching_up.setdefault(copy.broker_id, []).append(name)
    yield from (wait_until_in_sync(other, held) for other, held in sorted(catching_up.items()))
    yield from (start_holder(other, held) for other, held in sorted(offline.items()))
    if single:
        yield add_replica(single)
    if here:
        yield keep_in_use(player.broker, directories, here, registered=player.disks.state != "missing")
