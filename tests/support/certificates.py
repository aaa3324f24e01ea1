"""Certificates for tests: an authority, and what it signs, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates of its own. They lack the identifier of its key, for which Python asks from 3.13 on."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._certificate(self._name, self._key, days=10, host=None)
        self.path = folder / "ca.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def signed(self, name: str, *, host: str | None = "127.0.0.1", days: int = 10, password: str = "") -> Path:
        """A file with the key and the certificate of ``name``. ``days`` below 0: it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._certificate(subject, key, days=days, host=host)
        secret = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        packed = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
        path = self._folder / f"{name}.pem"
        path.write_bytes(packed + certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int, host: str | None
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        until = now + datetime.timedelta(days=days)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, until) - datetime.timedelta(days=20))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=subject == self._name, path_length=None), critical=True)
        )
        if host is not None:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
            made = made.add_extension(names, critical=False)
        return made.sign(self._key, hashes.SHA256())
