"""Certificates: an authority of one's own for trying out, and whether a given certificate can serve."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput

AUTHORITY, CERTIFICATE, KEY = "authority.crt", "server.crt", "server.key"
DAYS = 365


def make_certificates(folder: Path, host: str, days: int = DAYS) -> None:
    """Writes an authority's certificate, and one that it signed for a server with its key.

    The authority's own key is not kept: it signs one certificate. Whoever has an authority already uses that.

    Args:
        folder: where :data:`AUTHORITY`, :data:`CERTIFICATE` and :data:`KEY` go; the key is private.
        host: the name or the address under which silos reach the server.
        days: how long they hold.
    """
    files.private_folder(folder)
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "secure-fedgraph authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)

    def begun(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, end) - datetime.timedelta(minutes=5))
            .not_valid_after(end)
        )

    of_authority = begun(issuer, authority_key).add_extension(x509.BasicConstraints(True, 0), critical=True)
    of_server = (
        begun(subject, server_key)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
    )
    signed = {
        AUTHORITY: of_authority.sign(authority_key, hashes.SHA384()),
        CERTIFICATE: of_server.sign(authority_key, hashes.SHA384()),
    }
    for name, certificate in signed.items():
        files.write(folder / name, [certificate.public_bytes(Encoding.PEM)], private=False)
    secret = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files.write(folder / KEY, [secret], private=True)


def check_certificate(certificate: Path, key: Path, host: str) -> None:
    """Checks that a server can start with a certificate, and that silos will take it.

    Args:
        host: the name or the address under which silos reach the server.

    Raises:
        BadInput: for a file that is missing or no certificate, one that does not hold now or is for other
            hosts, and a key that is another's.
    """
    try:
        parsed = x509.load_pem_x509_certificate(files.read(certificate, most=2**20))
        secret = load_pem_private_key(files.read(key, most=2**20), None)
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except FileNotFoundError as error:
        raise BadInput(f"{error.filename} is missing: give --certificate and --key") from None
    except (ValueError, TypeError, x509.ExtensionNotFound):
        raise BadInput(
            f"{certificate} or {key} is no certificate of a host ({host}) with its key in PEM: give others"
        ) from None
    begin, end = parsed.not_valid_before_utc, parsed.not_valid_after_utc
    if not begin <= datetime.datetime.now(datetime.UTC) <= end:
        raise BadInput(
            f"{certificate} holds from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC: check the clock, "
            "get a new one, or delete the folder's certificates and let 'federation init' make some"
        )
    if secret.public_key() != parsed.public_key():
        raise BadInput(f"{key} is not the key of {certificate}: give the pair")
    ours, known = _alternative(host), {str(one.value).lower() for one in names}
    if not {str(ours.value).lower(), "*." + host.partition(".")[2].lower()} & known:
        raise BadInput(
            f"{certificate} is for {', '.join(sorted(known))}, and silos reach the server under {host}, so "
            f"they would refuse it: get one for {host}, or delete the folder of certificates that "
            "'federation init' made"
        )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
