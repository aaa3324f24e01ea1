"""A log that comes as a tar stream: what is read of it, and what is refused in one line."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.source.log_dir import LOG_NAME, LogDir
from pipelines.source.piped_log import BadStream, unpacked
from tests.support.paths import metadata_dir

SOURCE = metadata_dir("kafka-4.1.2")
SEGMENT = f"{LOG_NAME}/00000000000000000000.log"


def tar_of(*names: str, form: int = tarfile.GNU_FORMAT) -> bytes:
    """What ``tar cf - -C SOURCE NAME...`` writes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=form) as tar:
        for name in names:
            tar.add(SOURCE / name, name)
    return packed.getvalue()


def tar_with(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A log with more members behind it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(SOURCE / SEGMENT, SEGMENT)
        for info, content in members:
            info.size = info.size or len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def named(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def files(log_dir: str) -> dict[str, bytes]:
    """Segments and snapshots."""
    return {Path(file.path).name: Path(file.path).read_bytes() for kind in LogDir(log_dir).files() for file in kind}


def zstd(data: bytes) -> bytes:
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(data)
    return bytes(packed.getvalue())


LOG = tar_of(LOG_NAME, "meta.properties")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
@pytest.mark.parametrize(
    "data",
    [LOG, tar_of("."), tar_of(LOG_NAME), tar_of(".", form=tarfile.PAX_FORMAT), tar_of(".", form=tarfile.USTAR_FORMAT)],
    ids=["two names", "all of it", "the log only", "pax", "ustar"],
)
def test_stream_is_the_folder_that_it_was_made_of(data: bytes, pack: Callable[[bytes], bytes]) -> None:
    with unpacked(io.BytesIO(pack(data))) as folder:
        assert files(folder) == files(str(SOURCE))
        assert Path(folder).parent.stat().st_mode & 0o777 == 0o700
    assert not Path(folder).parent.exists()


def test_indexes_and_files_that_kafka_deletes_take_no_room() -> None:
    others = [f"{LOG_NAME}/00000000000000000007.timeindex", f"{LOG_NAME}/00000000000000000000.log.deleted"]
    with unpacked(io.BytesIO(tar_with(*((named(name), b"x" * 9000) for name in others)))) as folder:
        assert [path.name for path in (Path(folder) / LOG_NAME).iterdir()] == [Path(SEGMENT).name]


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (named("/etc/passwd"), "no file of a metadata.log.dir"),
        (named(f"../{SEGMENT}"), "no file of a metadata.log.dir"),
        (named(f"{LOG_NAME}/../x.log"), "no file of a metadata.log.dir"),
        (named(f"{LOG_NAME}/0.log"), "no file of a metadata.log.dir"),
        (named("orders-3", tarfile.DIRTYPE), "no file of a metadata.log.dir"),
        (named("\x1b[2J\n"), r"\x1b[2J\n: no file"),
        (named(f"{LOG_NAME}/00000000000000000001.log", tarfile.SYMTYPE, "/etc/passwd"), "a link"),
        (named(f"{LOG_NAME}/00000000000000000001.log", tarfile.LNKTYPE, SEGMENT), "a link"),
        (named("meta.properties", tarfile.FIFOTYPE), "a pipe"),
        (named("meta.properties", tarfile.BLKTYPE), "a device"),
        (named(SEGMENT), "comes twice"),
        (named("x" * 200), "a name of more than 100 bytes"),
    ],
    ids=lambda value: value.name[:30] if isinstance(value, tarfile.TarInfo) else "",
)
def test_foreign_member_is_refused(info: tarfile.TarInfo, reason: str) -> None:
    with pytest.raises(BadStream) as refused, unpacked(io.BytesIO(tar_with((info, b"")))):
        pass
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"hello", "is not a tar stream"),
        (b"\0" * 20480, f"has no {LOG_NAME}"),
        (b"x" * 20480, "holds no tar stream"),
        (tar_of("meta.properties"), f"has no {LOG_NAME}"),
        (LOG[:20000], "ends before tar's end mark"),
        (LOG + LOG, "goes on after tar's end mark"),
        (gzip.compress(LOG)[:-9], "gzip cannot unpack it"),
        (zstd(LOG)[:-100], "zstd cannot unpack it"),
        (b"\x1f\x8b" + b"x" * 100, "gzip cannot unpack it"),
    ],
)
def test_stream_that_is_no_whole_log_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadStream, match=reason), unpacked(io.BytesIO(data)):
        pass


@pytest.mark.parametrize("cut", [512 * blocks + more for blocks in (1, 2, 9, 30) for more in (0, 1, 511)])
def test_stream_that_is_cut_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(BadStream, match="ends before tar's end mark"), unpacked(io.BytesIO(LOG[:cut])):
        pass


def test_damaged_header_is_not_taken_for_the_end() -> None:
    at = LOG.index(b"meta.properties")
    with pytest.raises(BadStream, match="damaged tar header"), unpacked(io.BytesIO(LOG[:at] + b"N" + LOG[at + 1 :])):
        pass


def test_length_that_lies_is_not_believed() -> None:
    info = named("meta.properties")
    info.size = 50 << 30
    header = info.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(BadStream, match="ends before"), unpacked(io.BytesIO(tar_of(SEGMENT)[:-10240] + header + b"x")):
        pass
    pax = named("x", b"x")
    pax.size = 1 << 40
    with (
        pytest.raises(BadStream, match="extended tar header of"),
        unpacked(io.BytesIO(pax.tobuf(tarfile.GNU_FORMAT) + LOG)),
    ):
        pass


def test_extended_header_must_not_rename_a_file() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = named(SEGMENT)
        info.pax_headers = {"path": "../../x"}
        tar.addfile(info)
    with pytest.raises(BadStream, match="extended tar header sets path"), unpacked(io.BytesIO(packed.getvalue())):
        pass


def test_log_that_is_larger_than_the_bound_is_refused() -> None:
    with pytest.raises(BadStream, match="more than 10,000 bytes"), unpacked(io.BytesIO(LOG), most=10_000):
        pass
