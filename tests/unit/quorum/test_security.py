"""TLS and SASL with controllers of our own: who gets in, and the one line for who does not."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramMechanism

from jbod_model.errors import JbodError, UsageError
from pipelines.cli.main import main
from pipelines.quorum.client import QuorumClient, addresses_of
from pipelines.quorum.security import security_of
from tests.support.certificates import Authority
from tests.support.controller import Controller, Log
from tests.support.paths import metadata_dir

DATA = (metadata_dir("kafka-4.4.0") / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()
PASSWORD = 'p;a"s\\s 7'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def written(folder: Path, **settings: str) -> str:
    path = folder / "client.properties"
    path.write_text("".join(f"{name.replace('__', '.')}={value}\n" for name, value in settings.items()))
    return str(path)


def jaas(user: str = "jbod", password: str = PASSWORD) -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    return f'org.apache.kafka.common.security.X required username="{user}" password="{quoted}";'


def fetched(controller: Controller, config: str) -> bytes:
    reader = QuorumClient(addresses_of(controller.url), security_of(config), patience=2.0)
    try:
        return bytes(reader.fetch(1, None).records)
    finally:
        reader.close()


def refusal(controller: Controller, config: str) -> str:
    with pytest.raises(JbodError) as refused:
        fetched(controller, config)
    assert "\n" not in str(refused.value)
    assert PASSWORD not in repr(refused.value)
    return str(refused.value)


# -- TLS --------------------------------------------------------------------------------------------------------------


def tls(authority: Authority, *, client: bool = False, **options: Any) -> Controller:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.signed("server", **options))
    if client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.path)
    return Controller(Log(DATA), context=context)


@pytest.fixture
def closing() -> Iterator[Callable[[Controller], Controller]]:
    opened: list[Controller] = []

    def add(controller: Controller) -> Controller:
        opened.append(controller)
        return controller

    yield add
    for controller in opened:
        controller.close()


Closing = Callable[[Controller], Controller]


def test_server_of_a_known_authority_is_believed(authority: Authority, tmp_path: Path, closing: Closing) -> None:
    controller = closing(tls(authority))
    config = written(tmp_path, security__protocol="SSL", ssl__truststore__location=str(authority.path))
    assert fetched(controller, config) == DATA
    text = authority.path.read_text().replace("\n", "\\n")
    assert fetched(controller, written(tmp_path, security__protocol="SSL", ssl__truststore__certificates=text)) == DATA


def test_unknown_authority_is_refused(authority: Authority, tmp_path: Path, closing: Closing) -> None:
    assert "its certificate is not accepted" in refusal(
        closing(tls(authority)), written(tmp_path, security__protocol="SSL")
    )


def test_expired_certificate_is_refused(authority: Authority, tmp_path: Path, closing: Closing) -> None:
    config = written(tmp_path, security__protocol="SSL", ssl__truststore__location=str(authority.path))
    assert "certificate has expired" in refusal(closing(tls(authority, days=-1)), config)


def test_name_of_the_host_is_compared_unless_told_otherwise(
    authority: Authority, tmp_path: Path, closing: Closing
) -> None:
    controller = closing(tls(authority, host="127.0.0.9"))
    known = {"security__protocol": "SSL", "ssl__truststore__location": str(authority.path)}
    assert "IP address mismatch" in refusal(controller, written(tmp_path, **known))
    assert fetched(controller, written(tmp_path, **known, ssl__endpoint__identification__algorithm="")) == DATA


def test_client_proves_who_it_is(authority: Authority, tmp_path: Path, closing: Closing) -> None:
    controller = closing(tls(authority, client=True))
    known = {"security__protocol": "SSL", "ssl__truststore__location": str(authority.path)}
    assert "certificate" in refusal(controller, written(tmp_path, **known))
    key = str(authority.signed("client", password=PASSWORD))
    proof = {"ssl__keystore__location": key, "ssl__key__password": PASSWORD.replace("\\", "\\\\")}
    assert fetched(controller, written(tmp_path, **known, **proof)) == DATA
    wrong = written(tmp_path, **known, ssl__keystore__location=key, ssl__key__password="wrong")
    assert "the certificates or the key cannot be used" in refusal(controller, wrong)


def test_tls_where_there_is_none_is_told_and_the_reverse(
    authority: Authority, tmp_path: Path, closing: Closing
) -> None:
    config = written(tmp_path, security__protocol="SSL", ssl__truststore__location=str(authority.path))
    plain = closing(Controller(Log(DATA)))
    assert "does the port speak TLS" in refusal(plain, config)
    assert "TLS" in refusal(closing(tls(authority)), "")


# -- SASL -------------------------------------------------------------------------------------------------------------


def plain(mechanism: str) -> Callable[[bytes], bytes | None] | None:
    if mechanism != "PLAIN":
        return None
    return lambda message: b"" if message == b"\0jbod\0" + PASSWORD.encode() else None


def scram(mechanism: str) -> Callable[[bytes], bytes | None]:
    server = ScramMechanism(mechanism)
    salt, stored, key, rounds = server.make_auth_info(PASSWORD, iteration_count=4096)
    talk = server.make_server(lambda user: (salt, stored, key, rounds))
    messages: list[bytes] = []

    def answer(given: bytes) -> bytes | None:
        messages.append(given)
        if len(messages) == 1:
            talk.set_client_first(given.decode())
            return bytes(talk.get_server_first().encode())
        try:
            talk.set_client_final(given.decode())
        except Exception:
            return None
        return bytes(talk.get_server_final().encode())

    return answer


def bearer(mechanism: str) -> Callable[[bytes], bytes | None]:
    return lambda message: (
        b""
        if message == b"n,,\x01auth=Bearer good\x01\x01"
        else b'{"status":"invalid"}'
        if message[0:1] == b"n"
        else None
    )


def test_password_opens_and_a_wrong_one_does_not(tmp_path: Path, closing: Closing) -> None:
    controller = closing(Controller(Log(DATA), log_in=plain))
    known = {"security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": "PLAIN"}
    assert fetched(controller, written(tmp_path, **known, sasl__jaas__config=jaas())) == DATA
    wrong = written(tmp_path, **known, sasl__jaas__config=jaas(password="wrong"))
    assert "refuses the login by PLAIN: user, password or token" in refusal(controller, wrong)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_both_sides(tmp_path: Path, closing: Closing, mechanism: str) -> None:
    controller = closing(Controller(Log(DATA), log_in=scram))
    known = {"security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": mechanism}
    assert fetched(controller, written(tmp_path, **known, sasl__jaas__config=jaas())) == DATA
    wrong = written(tmp_path, **known, sasl__jaas__config=jaas(password="wrong"))
    assert f"refuses the login by {mechanism}" in refusal(controller, wrong)


def test_server_that_does_not_know_the_password_is_not_believed(tmp_path: Path, closing: Closing) -> None:
    messages: list[bytes] = []

    def thief(mechanism: str) -> Callable[[bytes], bytes | None]:
        def answer(given: bytes) -> bytes | None:
            messages.append(given)
            nonce = given.decode().partition("r=")[2] if given.startswith(b"n,") else ""
            salt = base64.b64encode(b"salt").decode()
            return f"r={nonce}x,s={salt},i=4096".encode() if nonce else b"v=" + base64.b64encode(b"0" * 32)

        return answer

    controller = closing(Controller(Log(DATA), log_in=thief))
    config = written(
        tmp_path, security__protocol="SASL_PLAINTEXT", sasl__mechanism="SCRAM-SHA-256", sasl__jaas__config=jaas()
    )
    assert "does not prove by SCRAM-SHA-256 that it knows the password" in refusal(controller, config)
    assert not any(PASSWORD.encode() in message for message in messages)


def test_token_comes_from_a_file_or_a_command(tmp_path: Path, closing: Closing) -> None:
    controller = closing(Controller(Log(DATA), log_in=bearer))
    known = {"security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": "OAUTHBEARER"}
    (tmp_path / "token").write_text("good\n")
    assert (
        fetched(controller, written(tmp_path, **known, sasl__oauthbearer__token__file=str(tmp_path / "token"))) == DATA
    )
    assert fetched(controller, written(tmp_path, **known, sasl__oauthbearer__token__command="echo good")) == DATA
    bad = written(tmp_path, **known, sasl__oauthbearer__token__command="echo bad")
    assert "refuses the login by OAUTHBEARER" in refusal(controller, bad)
    none = written(tmp_path, **known, sasl__oauthbearer__token__command="false")
    assert "sasl.oauthbearer.token.command: no token (CalledProcessError)" in refusal(controller, none)


def test_mechanism_that_the_server_lacks_is_told(tmp_path: Path, closing: Closing) -> None:
    config = written(
        tmp_path, security__protocol="SASL_PLAINTEXT", sasl__mechanism="SCRAM-SHA-512", sasl__jaas__config=jaas()
    )
    assert "takes no SCRAM-SHA-512, but: PLAIN" in refusal(closing(Controller(Log(DATA), log_in=plain)), config)


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security__protocol": "TLS"}, "security.protocol is one of PLAINTEXT, SSL"),
        ({"sasl__mechanisms": "PLAIN"}, "sasl.mechanisms: jbod does not know it"),
        ({"security__protocol": "SASL_SSL"}, "sasl.mechanism is one of PLAIN"),
        ({"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN"}, 'has no username="..." and password="..."'),
        ({"security__protocol": "SSL", "ssl__truststore__type": "JKS"}, "ssl.truststore.type: jbod reads PEM"),
        ({"security__protocol": "SSL", "ssl__truststore__location": "/nowhere"}, "the certificates or the key cannot"),
        ({"sasl__jaas__config": "${env:NOBODY_SET}"}, "the variable NOBODY_SET is not set"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, settings: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        security_of(written(tmp_path, **settings))
    assert reason in str(refused.value)


def test_password_comes_from_the_environment_and_is_never_shown(
    tmp_path: Path, closing: Closing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JBOD_TEST_SECRET", "hush-hush")
    controller = closing(Controller(Log(DATA), log_in=plain))
    config = written(
        tmp_path,
        security__protocol="SASL_PLAINTEXT",
        sasl__mechanism="PLAIN",
        sasl__jaas__config=jaas(password="${env:JBOD_TEST_SECRET}"),
        bootstrap__servers="elsewhere:9092",
    )
    assert "hush-hush" not in repr(security_of(config))
    with pytest.raises(SystemExit) as left:
        main(["mirror", controller.url, "--into", str(tmp_path / "m"), "--command-config", config, "-v"])
    output = capsys.readouterr()
    assert left.value.code == 2
    assert "refuses the login by PLAIN" in output.err
    assert len([line for line in output.err.splitlines() if "settings" not in line]) == 1
    assert "hush" not in output.err + output.out
