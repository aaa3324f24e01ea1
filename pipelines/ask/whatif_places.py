"""Names of brokers and directories: ``3``, or ``3:r60J`` with the first characters of the id, a path or a label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jbod_model.errors import UsageError
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Place:
    """A broker, or one of its directories."""

    broker_id: int
    broker: str
    """online, fenced or missing."""
    directory_id: str | None = None
    """None for the whole broker."""
    listed: bool = True
    """For a directory: whether the broker lists it as online."""
    only: bool = False
    """Whether it is the only online directory of its broker."""

    @property
    def online(self) -> bool:
        """Whether anything is lost if it fails now."""
        return self.listed and self.broker == "online"


def find_place(lake: Lake, text: str) -> Place:
    """The broker or directory that ``text`` names. Raises UsageError, with the known names, for none or several."""
    number, colon, prefix = text.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 11):
        raise UsageError(f"{text}: no broker: write BROKER or BROKER:DIRECTORY, for instance 1 or 1:r60J")
    broker = int(number)
    registered = {
        row[0]: row[1:] for row in lake.query(f"SELECT broker_id, fenced, log_dirs FROM {lake.at('brokers')}")
    }
    fenced, listed = registered.get(broker, (None, ()))
    state = "missing" if fenced is None else "fenced" if fenced else "online"
    if not colon:
        if fenced is None:
            known = ", ".join(map(str, sorted(registered))) or "none"
            raise UsageError(f"{text}: broker {broker} is not registered at offset {lake.offset}; registered: {known}")
        return Place(broker, state)
    directory = _find_directory(lake, text, broker, prefix)
    here = directory in listed
    return Place(broker, state, directory, here, here and len(listed) == 1)


def find_directory(lake: Lake, text: str) -> Place:
    """The same for a directory only."""
    if ":" not in text:
        raise UsageError(f"{text}: no directory: write BROKER:DIRECTORY, with an id or the beginning of one")
    return find_place(lake, text)


def _find_directory(lake: Lake, text: str, broker: int, prefix: str) -> str:
    """Searches the directories that were ever online on the broker, and those that its replicas name."""
    known = {
        str(directory)
        for (directory,) in lake.query(
            f"""
            SELECT directory_id FROM {lake.until("directories")} WHERE broker_id = {broker}
            UNION
            SELECT directory_id FROM {lake.at("assignments")} WHERE broker_id = {broker} AND kind = 'assigned'
            """
        )
    }
    matching = sorted(one for one in known if prefix in (lake.names.get(one) or ()))
    if not matching:
        matching = sorted(directory for directory in known if directory.startswith(prefix))
    if len(matching) == 1:
        return matching[0]
    if not known:
        raise UsageError(f"{text}: broker {broker} never had a directory, up to offset {lake.offset}")
    if not matching:
        raise UsageError(f"{text}: broker {broker} has no such directory; it has, or had: {_listed(lake, known)}")
    raise UsageError(f"{text}: several directories match: {_listed(lake, matching)}")


def _listed(lake: Lake, directories: Iterable[str]) -> str:
    named = ((one, lake.names.get(one)) for one in sorted(directories))
    return ", ".join(one if name is None else name.behind(one) for one, name in named)
