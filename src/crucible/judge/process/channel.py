"""Channel: JSON lines over a socket, with deadlines, and file descriptors beside them.

Only text and raw bytes cross a process boundary here; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from typing import Any

LINE_LIMIT = 16 << 20
"""Bytes in one message at most: a shape list or a compiler log is far below it."""

MOST_DESCRIPTORS = 64
"""That come with one message."""


class ChannelClosed(Exception):
    """The other end is gone."""


class ChannelTimeout(Exception):
    """Nothing whole arrived before the deadline."""


class BadMessage(Exception):
    """Something arrived that is no message: wrong form, wrong secret, or over the size limit."""


class Channel:
    """One end of a socket pair. Messages are dicts; `secret` must open each message where one is set."""

    def __init__(self, sock: socket.socket, secret: str = "", most_descriptors: int = MOST_DESCRIPTORS) -> None:
        """`most_descriptors` that come with one message are taken, others dropped: 0 from who is not trusted, whose
        flood of them would leave this process none for anybody else."""
        self.sock = sock
        self.secret = secret
        self.most_descriptors = most_descriptors
        self._pending = b""
        self._descriptors: list[int] = []

    @classmethod
    def from_descriptor(cls, descriptor: int, secret: str = "") -> Channel:
        return cls(socket.socket(fileno=descriptor), secret)

    def send(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Writes one message. Raises ChannelClosed when nobody listens."""
        line = f"{self.secret} {json.dumps(message)}\n".encode()
        try:
            sent = socket.send_fds(self.sock, [line], list(descriptors))
            self.sock.sendall(line[sent:])
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next message. Raises ChannelClosed, ChannelTimeout or BadMessage."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            if len(self._pending) > LINE_LIMIT:
                raise BadMessage(f"a message of over {LINE_LIMIT} bytes")
            self._read_more(deadline)
        line, _, self._pending = self._pending.partition(b"\n")
        return self._parse(line)

    def take_descriptor(self) -> int:
        """The oldest file descriptor that came with a message; the caller owns it."""
        return self._descriptors.pop(0)

    def take_descriptors(self) -> list[int]:
        """All file descriptors that have come; the caller owns them."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def close(self) -> None:
        self.sock.close()

    def _read_more(self, deadline: float | None) -> None:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise ChannelTimeout
        try:
            data, descriptors = self._received()
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        self._descriptors += descriptors
        if not data:
            raise ChannelClosed("end of stream")
        self._pending += data

    def _received(self) -> tuple[bytes, list[int]]:
        if not self.most_descriptors:
            return self.sock.recv(1 << 20), []  # without room for them the system drops them
        data, descriptors, _, _ = socket.recv_fds(self.sock, 1 << 20, self.most_descriptors)
        return data, descriptors

    def _parse(self, line: bytes) -> dict[str, Any]:
        secret, _, text = line.partition(b" ")
        if secret != self.secret.encode():
            raise BadMessage(f"a message that the judge's own code did not write: {line[:80]!r}")
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"not JSON: {text[:80]!r}") from error
        if not isinstance(message, dict):
            raise BadMessage(f"not an object: {text[:80]!r}")
        return message


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends; the caller hands one to a child by descriptor."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def read_exactly(descriptor: int, view: memoryview, timeout_s: float) -> int:
    """Fills `view` from a pipe; returns the bytes read, fewer only at the end of the stream.

    Raises ChannelTimeout when nothing arrives for `timeout_s`.
    """
    done = 0
    while done < len(view):
        if not select.select([descriptor], [], [], timeout_s)[0]:
            raise ChannelTimeout
        got = os.readv(descriptor, [view[done:]])
        if got == 0:
            break
        done += got
    return done
