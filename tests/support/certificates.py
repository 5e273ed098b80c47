"""Certificates made at test time: an authority, and whatever it is asked to sign."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = dt.datetime.now(dt.UTC)
SIGNS = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip
"""Clients in Python 3.13 take nothing else for an authority, nor certificates that do not name the authority's key."""


class Authority:
    """Signs certificates and revokes them."""

    def __init__(self, directory: Path, name: str = "test authority", above: Authority | None = None) -> None:
        """Signed by the one `above`, or by itself."""
        self.directory = directory
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (above or self)._builder(self.name, self.key, 10)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(SIGNS, critical=True)
        self.certificate = builder.sign((above or self).key, hashes.SHA256())
        self.path = directory / f"{name.replace(' ', '-')}.pem"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        self.revoked: list[int] = []

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: float) -> x509.CertificateBuilder:
        begin = NOW - dt.timedelta(days=30)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(NOW + dt.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(self._signed_by, critical=False)
        )

    def issue(self, common_name: str, *, days: float = 10) -> tuple[Path, Path]:
        """(certificate, key) files; negative days: it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        certificate = (
            self._builder(subject, key, days).add_extension(names, critical=False).sign(self.key, hashes.SHA256())
        )
        stem = common_name.replace(" ", "-")
        certificate_path, key_path = self.directory / f"{stem}.pem", self.directory / f"{stem}.key"
        certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate_path, key_path

    def revoke(self, certificate: Path) -> None:
        """The next list names it."""
        self.revoked.append(x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number)

    def revocation_list(self) -> Path:
        """The CRL as a file."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        builder = builder.last_update(NOW - dt.timedelta(days=1)).next_update(NOW + dt.timedelta(days=5))
        builder = builder.add_extension(self._signed_by, critical=False)
        builder = builder.add_extension(x509.CRLNumber(len(self.revoked) + 1), critical=False)
        for serial in self.revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW).build()
            builder = builder.add_revoked_certificate(entry)
        path = self.directory / "crl.pem"
        path.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path
