"""How a connection is secured: the keys of Kafka's clients, from a properties file (``--command-config``).

No message, and no text of these objects, has a password in it.
"""

from __future__ import annotations

import os
import re
import shlex
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jbod_model.errors import UsageError
from jbod_model.storage.properties import parse_properties

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_OF_OTHERS = re.compile(r"(bootstrap|client|request|retries|retry|default|group|enable|auto|key|value|acks)\b.*")
"""Keys of Kafka's clients that say nothing about security: a file may be shared with them."""
_KNOWN = {
    "security.protocol",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.oauthbearer.token.file",
    "sasl.oauthbearer.token.command",
}
_PEM = "PEM"
_OPTION = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
_VARIABLE = re.compile(r"\$\{env:(\w+)\}")
_COMMAND_SECONDS = 30


@dataclass(frozen=True)
class Security:
    """What a connection needs. The password and the keys are not in its text."""

    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    user: str = ""
    password: str = field(default="", repr=False)
    token_file: str = ""
    token_command: str = field(default="", repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def uses_sasl(self) -> bool:
        """Whether the client logs in by SASL."""
        return self.protocol.startswith("SASL_")

    def token(self) -> str:
        """The token of OAUTHBEARER, read anew from its file or command. Raises UsageError if there is none."""
        try:
            if self.token_file:
                return Path(self.token_file).read_text(encoding="ascii").strip()
            done = subprocess.run(  # noqa: S603 -- the operator's own command, without a shell
                shlex.split(self.token_command), capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=True
            )
            return done.stdout.strip()
        except (OSError, ValueError, subprocess.SubprocessError) as problem:
            where = "file" if self.token_file else "command"
            raise UsageError(f"sasl.oauthbearer.token.{where}: no token ({type(problem).__name__})") from None


def security_of(file: str) -> Security:
    """The security that a properties file sets, none without a file. Raises UsageError for what cannot be used."""
    if not file:
        return Security()
    try:
        given = parse_properties(Path(file).read_bytes())
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise UsageError(f"{file}: cannot be read ({reason})") from None
    settings = {key: _with_variables(file, key, value) for key, value in given.items()}
    for key in settings:
        if key not in _KNOWN and not _OF_OTHERS.fullmatch(key):
            raise UsageError(f"{file}: {key}: jbod does not know it; it knows {', '.join(sorted(_KNOWN))}")
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise UsageError(f"{file}: security.protocol is one of {', '.join(PROTOCOLS)}")
    context = _context(file, settings) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return Security(protocol, context=context)
    mechanism = settings.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise UsageError(f"{file}: sasl.mechanism is one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        token_file = settings.get("sasl.oauthbearer.token.file", "")
        token_command = settings.get("sasl.oauthbearer.token.command", "")
        if bool(token_file) == bool(token_command):
            raise UsageError(
                f"{file}: OAUTHBEARER takes its token from sasl.oauthbearer.token.file or from "
                "sasl.oauthbearer.token.command: set one of them"
            )
        return Security(protocol, mechanism, token_file=token_file, token_command=token_command, context=context)
    options = {name: _unescaped(quoted) or bare for name, quoted, bare in _OPTION.findall(settings.get(_JAAS, ""))}
    if not options.get("username") or not options.get("password"):
        raise UsageError(f'{file}: {_JAAS} has no username="..." and password="..." for {mechanism}')
    return Security(protocol, mechanism, options["username"], options["password"], context=context)


_JAAS = "sasl.jaas.config"


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _with_variables(file: str, key: str, value: str) -> str:
    """``${env:NAME}`` stands for a variable of the environment, as with Kafka's EnvVarConfigProvider."""

    def named(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise UsageError(f"{file}: {key}: the variable {match[1]} is not set")
        return os.environ[match[1]]

    return _VARIABLE.sub(named, value)


def _context(file: str, settings: Mapping[str, str]) -> ssl.SSLContext:
    """What TLS needs. The name of the server is checked unless ssl.endpoint.identification.algorithm is empty."""
    for store in ("truststore", "keystore"):
        if settings.get(f"ssl.{store}.type", _PEM) != _PEM:
            raise UsageError(
                f"{file}: ssl.{store}.type: jbod reads PEM: convert the store (keytool, openssl pkcs12), "
                f"and set ssl.{store}.type=PEM"
            )
    text = settings.get("ssl.truststore.certificates") or None
    path = None if text else settings.get("ssl.truststore.location")
    try:
        context = ssl.create_default_context(cafile=path, cadata=text)
        # From Python 3.13 on, it refuses certificates without extensions that Java does not ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != ""
        if path := settings.get("ssl.keystore.location"):
            context.load_cert_chain(path, password=settings.get("ssl.key.password", ""))
        elif "ssl.keystore.key" in settings or "ssl.keystore.certificate.chain" in settings:
            raise UsageError(f"{file}: ssl.keystore.key: name a file with key and certificates: ssl.keystore.location")
    except (OSError, ssl.SSLError, ValueError) as problem:
        raise UsageError(f"{file}: the certificates or the key cannot be used ({_reason(problem)})") from None
    return context


def _reason(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.strerror and problem.filename:
        return f"{problem.filename}: {problem.strerror}"
    return getattr(problem, "reason", None) or type(problem).__name__
