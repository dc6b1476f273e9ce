"""A time-stamping authority for tests: certificates made here, responses by `openssl ts`."""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)

_CONFIG = """
[tsa]
default_tsa = here
[here]
serial = serial
default_policy = 1.2.3.4.1
digests = sha256, sha512
signer_digest = sha256
ess_cert_id_alg = sha256
ess_cert_id_chain = no
"""


class Authority:
    """A root, and a certificate for time stamps under it, valid for the given days from now.

    With ``between`` so many certificates stand between the two, and are sent with each stamp.
    """

    def __init__(self, folder: Path, name: str = "Test", days=(-1, 30), between: int = 0):
        folder.mkdir()
        self.folder = folder
        now = datetime.now(UTC).replace(microsecond=0)
        root_key, key = _key(), _key()
        root_name = _name(f"{name} root")
        # A root outlives what it signs.
        ages = (now + timedelta(days=-9000), now + timedelta(days=9000))
        root = (
            _builder(root_name, root_name, root_key, ages)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(root_key, hashes.SHA256())
        )
        span = tuple(now + timedelta(days=d) for d in days)
        issuer, issuer_key = root_name, root_key
        self.chain = []
        for number in range(between):
            # Names of several lengths, so that the certificates come in every order of DER.
            subject, subject_key = _name(f"{name} {'x' * 7 * number}"), _key()
            self.chain.append(
                _pem(
                    _builder(subject, issuer, subject_key, ages)
                    .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
                    .sign(issuer_key, hashes.SHA256())
                )
            )
            issuer, issuer_key = subject, subject_key
        builder = _builder(_name(f"{name} stamps"), issuer, key, span)
        usage = x509.KeyUsage(True, True, *[False] * 7)
        builder = builder.add_extension(usage, critical=True)
        kind = ExtendedKeyUsageOID.TIME_STAMPING
        builder = builder.add_extension(x509.ExtendedKeyUsage([kind]), critical=True)
        certificate = builder.sign(issuer_key, hashes.SHA256())
        self.root = _pem(root)
        (folder / "tsa.pem").write_bytes(_pem(certificate))
        (folder / "tsa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        (folder / "tsa.conf").write_text(_CONFIG)
        (folder / "chain.pem").write_bytes(b"".join(self.chain))
        (folder / "serial").write_text("01\n")

    def stamp(self, query: bytes) -> bytes:
        """What the authority answers to a query."""
        (self.folder / "query.tsq").write_bytes(query)
        subprocess.run(
            ["openssl", "ts", "-reply", "-config", "tsa.conf", "-queryfile", "query.tsq",
             "-signer", "tsa.pem", "-inkey", "tsa.key", "-out", "response.tsr",
             *(["-chain", "chain.pem"] if self.chain else [])],
            cwd=self.folder, check=True, capture_output=True,
        )  # fmt: skip
        return (self.folder / "response.tsr").read_bytes()


def _key():
    return ec.generate_private_key(ec.SECP256R1())


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject, issuer, key, span):
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(span[0])
        .not_valid_after(span[1])
    )


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)
