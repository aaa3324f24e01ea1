"""The syntax of properties files (R-STORE-1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbod_model.storage.properties import MAX_PROPERTIES_BYTES, parse_properties, render_properties
from tests.support.volume import amount

CASES = [
    (b"", {}),
    (b"#\n# a comment\n! another\n\nnode.id=1\n", {"node.id": "1"}),
    (b"a=1\r\nb = 2\rc: 3\n", {"a": "1", "b": "2", "c": "3"}),
    (b"a 1\nb\t=\t2\n", {"a": "1", "b": "2"}),
    (b"a=1\na=2", {"a": "2"}),
    (b"a", {"a": ""}),
    (b"a=", {"a": ""}),
    (b"a=b=c:d\n", {"a": "b=c:d"}),
    (b"a=one\\\n    two\n", {"a": "onetwo"}),
    (b"a=one\\\\\nb=2\n", {"a": "one\\", "b": "2"}),
    (b"a=one\\\n# not a comment\n", {"a": "one# not a comment"}),
    (b"a\\=b\\ c=d\\u0041\\t\n", {"a=b c": "dA\t"}),
    (b"a=trailing blank \n", {"a": "trailing blank "}),
    (b"a=\xe9\n", {"a": "\u00e9"}),
    (b"a=last\\", {"a": "last"}),
]


@pytest.mark.parametrize(("data", "expected"), CASES)
def test_properties_of_a_file_are_read_as_java_does(data: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(data) == expected


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\u12g4", b"a=\\u+123", b"a" * (MAX_PROPERTIES_BYTES + 1)])
def test_properties_that_are_malformed_raise_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\\u|bytes"):
        parse_properties(data)


@settings(max_examples=amount(20, 500))
@given(st.dictionaries(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])), st.text(max_size=20)))
def test_properties_rendered_and_parsed_are_the_same(properties: dict[str, str]) -> None:
    properties = {key: "".join(c for c in value if ord(c) < 0x10000) for key, value in properties.items()}
    assert parse_properties(render_properties(properties)) == properties


@given(st.binary(max_size=200))
def test_properties_of_any_bytes_are_read_or_raise_value_error(data: bytes) -> None:
    try:
        parse_properties(data)
    except ValueError:
        return
