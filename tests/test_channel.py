"""Messages come whole, with the secret, in time, or one of three exceptions says what was wrong."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible.judge.process import channel as channels
from crucible.judge.process.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout, pair, read_exactly

numbers = st.integers() | st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    a, b = (Channel(sock, "secret") for sock in pair())
    yield a, b
    a.close()
    b.close()


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, Channel]]:
    """A bare socket that speaks to a channel."""
    ours, theirs = pair()
    yield ours, Channel(theirs, "secret")
    ours.close()
    theirs.close()


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.dictionaries(st.text(), json_values, max_size=4))
def test_messages_come_as_they_went(ends: tuple[Channel, Channel], message: dict[str, Any]) -> None:
    ends[0].send(message)
    assert ends[1].receive(5) == message


def test_descriptors_that_nobody_asked_for_are_not_taken() -> None:
    """A candidate could send the judge so many that it has none left for anybody else."""
    ours, theirs = pair()
    judge = Channel(ours, "secret", most_descriptors=0)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        socket.send_fds(theirs, [b" "], [0] * 200)
    theirs.sendall(b"\n")
    with pytest.raises(BadMessage):
        judge.receive(5)
    assert len(os.listdir("/proc/self/fd")) == before
    Channel(theirs, "secret").send({"a": 1}, (0, 0))
    assert judge.receive(5) == {"a": 1}
    assert (judge.take_descriptors(), len(os.listdir("/proc/self/fd"))) == ([], before)
    judge.close()
    theirs.close()


def test_messages_keep_their_order_both_ways(ends: tuple[Channel, Channel]) -> None:
    for i in range(20):
        ends[0].send({"i": i})
        ends[1].send({"j": i})
    assert [ends[1].receive(5)["i"] for _ in range(20)] == list(range(20))
    assert [ends[0].receive(5)["j"] for _ in range(20)] == list(range(20))


def test_a_message_larger_than_the_sockets_buffer_comes_whole(ends: tuple[Channel, Channel]) -> None:
    text = "x" * (4 << 20)
    thread = threading.Thread(target=ends[0].send, args=({"text": text},))
    thread.start()
    assert ends[1].receive(20) == {"text": text}
    thread.join()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'wrong {"a": 1}', "did not write"),
        (b'{"a": 1}', "did not write"),
        (b"secretly {}", "did not write"),
        (b"secret no json", "not JSON"),
        (b"secret \xff\xfe", "not JSON"),
        (b"secret [1]", "not an object"),
        (b"secret " + b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_message_is_named(raw: tuple[socket.socket, Channel], line: bytes, words: str) -> None:
    raw[0].sendall(line + b"\n")
    with pytest.raises(BadMessage, match=words) as error:
        raw[1].receive(5)
    assert len(str(error.value)) < 500


def test_a_message_without_an_end_is_not_kept_for_ever(
    raw: tuple[socket.socket, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "LINE_LIMIT", 1000)
    raw[0].sendall(b"secret " + b"x" * 2000)
    with pytest.raises(BadMessage, match="over 1000 bytes"):
        raw[1].receive(5)


def test_a_closed_end_is_noticed_by_both_sides(ends: tuple[Channel, Channel]) -> None:
    ends[0].close()
    with pytest.raises(ChannelClosed):
        ends[1].receive(5)
    with pytest.raises(ChannelClosed):
        ends[1].send({"a": 1})


def test_half_a_message_before_the_end_is_no_message(raw: tuple[socket.socket, Channel]) -> None:
    raw[0].sendall(b'secret {"a":')
    raw[0].close()
    with pytest.raises(ChannelClosed):
        raw[1].receive(5)


@pytest.mark.parametrize("sent", [b"", b'secret {"a"'])
def test_silence_is_a_timeout(raw: tuple[socket.socket, Channel], sent: bytes) -> None:
    raw[0].sendall(sent)
    start = time.monotonic()
    with pytest.raises(ChannelTimeout):
        raw[1].receive(0.1)
    assert time.monotonic() - start < 5


def test_a_trickle_does_not_put_the_deadline_off(raw: tuple[socket.socket, Channel]) -> None:
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.02):
            raw[0].send(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        with pytest.raises(ChannelTimeout):
            raw[1].receive(0.2)
    finally:
        stop.set()
        thread.join()


def test_descriptors_travel_beside_messages(ends: tuple[Channel, Channel]) -> None:
    pipes = [os.pipe() for _ in range(2)]
    for reading, writing in pipes:
        ends[0].send({"do": "attach"}, (reading,))
        os.close(reading)
        os.write(writing, b"%d" % writing)
    for _, writing in pipes:
        assert ends[1].receive(5) == {"do": "attach"}
        taken = ends[1].take_descriptor()
        assert os.read(taken, 10) == b"%d" % writing
        os.close(taken)
        os.close(writing)


def test_a_channel_can_be_made_from_a_descriptor() -> None:
    ours, theirs = pair()
    other = Channel.from_descriptor(theirs.detach())
    Channel(ours).send({"a": 1})
    assert other.receive(5) == {"a": 1}
    other.close()
    ours.close()


# --- pipes


def from_pipe(chunks: list[bytes], size: int, act: Callable[[int], None] = os.close) -> bytes:
    """What `read_exactly` makes of chunks written one by one; `act` ends the writing side."""
    reading, writing = os.pipe()

    def write() -> None:
        for chunk in chunks:
            os.write(writing, chunk)
            time.sleep(0.01)
        act(writing)

    thread = threading.Thread(target=write)
    thread.start()
    buffer = bytearray(size)
    try:
        return bytes(buffer[: read_exactly(reading, memoryview(buffer), 5)])
    finally:
        thread.join()
        os.close(reading)


def test_bytes_are_collected_until_there_are_enough() -> None:
    assert from_pipe([b"abc", b"d", b"efgh"], 8) == b"abcdefgh"


def test_fewer_bytes_come_only_at_the_end() -> None:
    assert from_pipe([b"abc", b"d"], 8) == b"abcd"
    assert from_pipe([], 8) == b""


def test_a_silent_pipe_is_a_timeout() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"abc")
    with pytest.raises(ChannelTimeout):
        read_exactly(reading, memoryview(bytearray(8)), 0.05)
    os.close(reading)
    os.close(writing)
