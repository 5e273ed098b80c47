"""A TLS listener whose certificate is about to expire: the probe, the metric, the alert's condition, the renewal."""

from __future__ import annotations

import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import gateway_template
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from free_ports import free_port
from running_gateway import TOKEN, Running, running

pytestmark = pytest.mark.ops

NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])


def write_certificate(folder: Path, days: int) -> float:
    """A certificate of its own authority for 127.0.0.1; when it expires."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC).replace(microsecond=0)
    end = now + timedelta(days=days)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(NAME, NAME, key.public_key(), x509.random_serial_number(), now, end)
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    (folder / "server.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "server.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return end.timestamp()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, int, float]]:
    folder = tmp_path_factory.mktemp("tls")
    end = write_certificate(folder, 10)
    port = free_port()
    listener = f"  - {{name: tls, port: {port}, tls: {{certificate: server.pem, key: server.key}}}}"
    with running(folder, listener) as gateway:
        yield gateway, port, end


def probe(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return gateway_template.run("probe", "--port", str(port), *arguments)


def test_the_probe_speaks_tls_and_checks_the_certificate(secured: tuple[Running, int, float]) -> None:
    gateway, port, _ = secured
    done = probe(port, "--ca-file", str(gateway.folder / "server.pem"))
    assert done.returncode == 0, done.stderr
    assert "committed and acknowledged" in done.stdout
    distrusted = probe(port, "--tls")
    assert distrusted.returncode == 1
    assert "do not trust each other" in distrusted.stderr


def test_the_metric_says_when_and_the_alert_would_fire(secured: tuple[Running, int, float]) -> None:
    gateway, _, end = secured
    (line,) = [
        each for each in gateway.text("/metrics").splitlines() if each.startswith("mqgate_tls_certificate_not_after")
    ]
    assert 'listener="tls"' in line
    assert float(line.split()[-1]) == end
    assert end - time.time() < 14 * 86400


def test_a_renewed_certificate_is_served_after_a_reload(secured: tuple[Running, int, float]) -> None:
    gateway, port, _ = secured
    renewed = write_certificate(gateway.folder, 300)
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin}/api/v1/reload", b"", {"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
    served = x509.load_pem_x509_certificate(ssl.get_server_certificate(("127.0.0.1", port)).encode())
    assert served.not_valid_after_utc.timestamp() == renewed
    assert probe(port, "--ca-file", str(gateway.folder / "server.pem")).returncode == 0
