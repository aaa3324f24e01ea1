"""The problems of a broker's directories: one class per broken rule, each with advice for operators."""

from __future__ import annotations

from jbod_model.errors import JbodError

UNFORMATTED = (
    "mount the disk that belongs there, if there is one: the broker does not start before, and once another disk is "
    "formatted in its place, it recreates the replicas empty; only for a new disk, and if `jbod safe-to-restart BROKER "
    "--blank DIR` says that no last copy is given up: `kafka-storage.sh format --ignore-formatted --config "
    "server.properties --cluster-id CLUSTER_ID` (a controller without controller.quorum.voters also needs "
    "--no-initial-controllers)"
)


class StorageProblem(JbodError):
    """Root of the problems of a broker's directories. ``directory`` is the one concerned, "" for all of them.

    ``rule`` is the broken rule of docs/spec/storage.md, ``fatal`` whether a broker refuses to start because of it,
    ``advice`` what an operator should do.
    """

    rule = ""
    fatal = True
    advice = ""

    def __init__(self, directory: str, problem: str) -> None:
        self.directory = directory
        self.problem = problem
        super().__init__(f"{directory}: {problem}" if directory else problem)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.directory, self.problem)


class MissingDirectory(StorageProblem):
    """The path does not exist: the disk is not mounted, or formatting should create it."""

    rule = "R-STORE-10"
    advice = UNFORMATTED


class NotFormatted(StorageProblem):
    """The directory has no meta.properties."""

    rule = "R-STORE-10"
    advice = UNFORMATTED


class UnreadableDirectory(StorageProblem):
    """The operating system refuses the directory or its meta.properties."""

    rule = "R-STORE-11"
    fatal = False
    advice = (
        "the broker starts without it, and its replicas stay offline: read and repair the disk; replace it only if "
        "`jbod safe-to-remove` finds no last copy in it"
    )


class MalformedMetaProperties(StorageProblem):
    """meta.properties is there but cannot be understood."""

    rule = "R-STORE-2"
    fatal = False
    advice = "the broker treats the disk as failed: restore meta.properties (node, cluster and its old directory.id)"


class ClusterIdMissing(StorageProblem):
    """A file of version 1 has no cluster.id, or a starting KRaft broker finds none."""

    rule = "R-STORE-5"
    advice = "write the cluster.id of the other directories into the file"


class ClusterIdMismatch(StorageProblem):
    """Two directories of one broker belong to different clusters."""

    rule = "R-STORE-6"
    advice = (
        "this disk comes from another cluster, or the id asked for is wrong: put it back, and keep its data, which may "
        "be the last copy"
    )


class NodeIdMissing(StorageProblem):
    """A file of version 1 has no node.id, or a starting KRaft broker finds none."""

    rule = "R-STORE-5"
    advice = "write the node.id of the other directories into the file"


class NodeIdMismatch(StorageProblem):
    """The directory belongs to another node than the first directory, or than the configured node."""

    rule = "R-STORE-6"
    advice = (
        "this disk comes from another broker, or the id asked for is wrong: put it back, and keep its data, which may "
        "be the last copy"
    )


class ReservedDirectoryId(StorageProblem):
    """directory.id is a reserved id (unassigned, lost, migrating and 97 kept for later)."""

    rule = "R-STORE-7"
    advice = "remove the directory.id line: the broker generates one when it starts, and reports its replicas anew"


class DuplicateDirectoryId(StorageProblem):
    """Two directories of one broker have the same id: one was copied from the other."""

    rule = "R-STORE-8"
    advice = (
        "one is a copy, and may be older: keep the disk that the broker used last, and take the other out of log.dirs; "
        "a directory.id line that is removed helps only if that disk has no folders of partitions (R-STORE-24)"
    )


class PartitionTwice(StorageProblem):
    """Two directories of one broker have a folder of the same partition."""

    rule = "R-STORE-24"
    advice = (
        "the broker stops with `Duplicate log directories`: if one disk is a copy of the other, take the copy out of "
        "log.dirs; otherwise `jbod offline` says which folder has the last copy: move the other one out of the "
        "directory, and delete neither before the replicas are in sync"
    )


class DirectoryIdMissing(StorageProblem):
    """The file has no directory.id: it was written before Kafka 3.7, or by hand."""

    rule = "R-STORE-9"
    fatal = False
    advice = "none needed: the broker generates an id when it starts"


class NoReadableDirectory(StorageProblem):
    """No directory has a meta.properties that can be read."""

    rule = "R-STORE-12"
    advice = "mount the disks of the broker; format its directories only if all of them are new"


class MetadataDirectoryNotGiven(StorageProblem):
    """No metadata directory was named although one is needed, or it is none of the directories."""

    rule = "R-STORE-13"
    advice = "name the metadata directory (metadata.log.dir, else the first of log.dirs)"


class MetadataDirectoryFailed(StorageProblem):
    """The directory with the metadata log cannot be read. Unlike a data directory, the broker needs it."""

    rule = "R-STORE-13"
    advice = "the broker cannot start: repair the disk, or give it a new metadata.log.dir, formatted, and let it fetch"


class MisplacedMetadataLog(StorageProblem):
    """A directory other than the metadata directory holds the metadata log."""

    rule = "R-STORE-14"
    advice = "set metadata.log.dir to this directory, or move __cluster_metadata-0 away if it is an old copy"


class LegacyVersion(StorageProblem):
    """Version 0 is what ZooKeeper brokers write; a broker that migrated keeps it."""

    rule = "R-STORE-4"
    fatal = False
    advice = "none needed on a migrated broker; a KRaft broker that was never under ZooKeeper has version 1"


class AlreadyFormatted(StorageProblem):
    """Formatting would write to a directory that is formatted already."""

    rule = "R-STORE-20"
    advice = "use --ignore-formatted to leave it as it is and format the others"


class NothingToFormat(StorageProblem):
    """Every directory is unreadable."""

    rule = "R-STORE-21"
    advice = "mount or repair at least one disk"


class WriteFailed(StorageProblem):
    """meta.properties could not be written; the old file is unchanged."""

    rule = "R-STORE-3"
    advice = "see the error of the operating system: space, permissions, or a failed disk"
