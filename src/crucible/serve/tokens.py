"""Tokens: who may use the service. Kept as digests, compared in constant time, never shown."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from crucible.errors import MisuseError

_SHAPE = re.compile(r"[\x21-\x7e]{16,512}")
"""What fits into a header; 16 characters are the fewest that nobody guesses."""


@dataclass(frozen=True)
class Tokens:
    """Those that open the service; none at all leaves it open to whoever reaches it."""

    digests: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def load(cls, file: Path) -> Tokens:
        """One token a line; empty lines and those that begin with # do not count. Raises MisuseError, which never
        quotes a line."""
        try:
            mode = file.stat().st_mode
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:  # a name with a null byte, bytes that are no UTF-8
            raise MisuseError(
                f"--token-file {file} cannot be read ({type(error).__name__}): give a text file"
            ) from None
        if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
            raise MisuseError(f"--token-file {file} is open to every user of this machine: chmod o-rwx it")
        given = {number: line.strip() for number, line in enumerate(lines, 1)}
        tokens = {number: text for number, text in given.items() if text and not text.startswith("#")}
        for number, text in tokens.items():
            if not _SHAPE.fullmatch(text):
                raise MisuseError(
                    f"--token-file {file}, line {number}: a token is 16 to 512 ASCII characters, no spaces"
                )
        if not tokens:
            raise MisuseError(f"--token-file {file} holds no token: write one a line, of 16 characters or more")
        return cls(tuple(_digest(text.encode()) for text in tokens.values()))

    @property
    def are_asked_for(self) -> bool:
        return bool(self.digests)

    def admit(self, authorization: bytes) -> bool:
        """Whether a request with that `Authorization` header may come in. Every token is compared, whole, whichever
        fits, and digests have one length: the time tells nothing."""
        scheme, _, given = authorization.partition(b" ")
        digest = _digest(given.strip())
        fits = [hmac.compare_digest(digest, own) for own in self.digests]
        return not self.digests or (any(fits) and scheme.lower() == b"bearer")


def check_exposure(host: str, tokens: Tokens) -> None:
    """Only who is on this machine may do without a token. Raises MisuseError."""
    if not is_loopback(host) and not tokens.are_asked_for:
        raise MisuseError(f"--host {host} lets other machines run code here: add --token-file FILE, or use 127.0.0.1")


def is_loopback(host: str) -> bool:
    """Of `localhost` and the addresses that no other machine reaches; of every other name not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
