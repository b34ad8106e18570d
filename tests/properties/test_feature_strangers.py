"""Whatever strangers, and friends gone wrong, send to a server of features: it goes on, counts it and tells nothing."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import numpy as np
import psutil
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtdg_lab.systems.feature_cache.rpc import frames
from dtdg_lab.systems.feature_cache.rpc.client import FeatureClient
from dtdg_lab.systems.feature_cache.rpc.server import FeatureServer

TOKEN, F = b"t" * 32, 4
KEYS = np.arange(0, 100, 2, dtype=np.int64)
ROWS = np.arange(200, dtype=np.float32).reshape(50, F)
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL" + bytes(48)  # of ZMTP 3.0
LIVE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def server() -> Iterator[FeatureServer]:
    with FeatureServer({1: ROWS}, {1: KEYS}, TOKEN) as serving:
        yield serving


@pytest.fixture(scope="module")
def friend(server: FeatureServer) -> Iterator[zmq.Socket]:
    """A connection with the token, by which anything can be said."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as connected:
        connected.linger = 0
        connected.plain_username, connected.plain_password = frames.USER, TOKEN.hex().encode()
        connected.rcvtimeo = connected.sndtimeo = 10_000
        connected.connect(server.addresses[1])
        yield connected


def alive(server: FeatureServer) -> None:
    with FeatureClient(0, server.addresses, TOKEN, F, 5.0) as client:
        assert np.array_equal(client.fetch({1: KEYS[[7, 3]]})[1].rows, ROWS[[7, 3]])


def tcp(server: FeatureServer) -> socket.socket:
    host, port = server.addresses[1].removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_anything_is_read_as_something_or_nothing(content: list[bytes]) -> None:
    assert frames.read_request(content) is None or len(content) == 2
    assert frames.read_reply(content) is None or len(content) == 2


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.floats(1e-3, 1e6),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9),
    st.integers(0, 7),
)
def test_what_is_written_is_read_wherever_it_lies(
    part: int, number: int, timeout_s: float, keys: list[int], shift: int
) -> None:
    head, array = frames.request_frames(part, number, timeout_s, np.array(keys, dtype=np.int64))
    moved = memoryview(bytes(shift) + array.tobytes())[shift:]
    request = frames.read_request([head, moved])
    assert request
    assert (request.requester, request.number, request.timeout_s) == (part, number, timeout_s)
    assert request.keys.tolist() == keys
    assert request.keys.flags.aligned
    assert request.nbytes == len(head) + 8 * len(keys)
    rows = np.array(keys, dtype=np.float32).reshape(-1, 1)
    head, array = frames.rows_frames(number, rows)
    reply = frames.read_reply([head, memoryview(bytes(shift) + array.tobytes())[shift:]])
    assert reply
    assert np.array_equal(reply.rows, rows)
    assert reply.rows.flags.aligned
    assert reply.nbytes == frames.rows_nbytes(len(keys), 1)
    described = frames.read_reply(frames.refusal_frames(number, "é" * 1000))
    assert described
    assert (described.kind, described.number, set(described.refusal)) == (frames.REFUSED, number, {"é"})


@LIVE
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_what_is_no_request_is_dropped_and_counted(
    server: FeatureServer, friend: zmq.Socket, content: list[bytes]
) -> None:
    if frames.read_request(content) is not None:
        return
    before = server.dropped()
    friend.send_multipart(content)
    friend.send_multipart(frames.request_frames(0, 1, 1.0, KEYS[:1]))
    reply = frames.read_reply(friend.recv_multipart())
    assert reply
    assert reply.rows.tolist() == ROWS[:1].tolist()
    assert server.dropped() == before + 1


@LIVE
@given(st.integers(0, 27), st.integers(0, 255), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60))
def test_requests_gone_wrong_are_refused_or_dropped(
    server: FeatureServer, friend: zmq.Socket, place: int, byte: int, keys: list[int]
) -> None:
    head, array = frames.request_frames(0, 2, 1.0, np.array(keys, dtype=np.int64))
    friend.send_multipart([head[:place] + bytes([byte]) + head[place + 1 :], array])
    last = 2**63 + 1  # no byte away from 2
    friend.send_multipart(frames.request_frames(0, last, 1.0, KEYS[:1]))
    while (reply := frames.read_reply(friend.recv_multipart())).number != last:
        known = bool(keys) and set(keys) <= set(KEYS.tolist()) and len(keys) <= len(KEYS)
        assert reply.kind == (frames.ROWS if known else frames.REFUSED)
    assert reply.rows.tolist() == ROWS[:1].tolist()


@LIVE
@given(st.binary(max_size=300), st.booleans())
def test_bytes_that_are_no_connection_of_ours_get_nothing(server: FeatureServer, content: bytes, greets: bool) -> None:
    received = b""
    with tcp(server) as stranger, contextlib.suppress(OSError):  # it hangs up
        stranger.sendall(GREETING * greets + content)
        stranger.shutdown(socket.SHUT_WR)
        while more := stranger.recv(1 << 12):
            received += more
    assert len(received) <= 64 + 100  # a greeting, and at most an error
    assert ROWS.tobytes()[:16] not in received
    server.check()


def test_the_server_is_alive_after_all_this(server: FeatureServer) -> None:
    alive(server)


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE", "our name, no token"])
def test_who_does_not_know_the_token_hears_nothing_and_leaves_nothing(server: FeatureServer, mechanism: str) -> None:
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        if mechanism == "CURVE":
            stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
            stranger.curve_serverkey = zmq.curve_keypair()[0]
        elif mechanism != "NULL":
            name = b"somebody" if mechanism == "PLAIN" else frames.USER
            stranger.plain_username, stranger.plain_password = name, b"guess"
        stranger.connect(server.addresses[1])
        with contextlib.suppress(zmq.Again):  # it may be shut out already
            for _ in range(20):
                stranger.send_multipart([frames.request_frames(0, 1, 1.0, KEYS)[0], bytes(1 << 20)], zmq.NOBLOCK)
        assert not stranger.poll(300)
    assert process.memory_info().rss - before < 8 << 20
    alive(server)


def test_a_frame_announced_as_endless_is_not_waited_for(server: FeatureServer) -> None:
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    with tcp(server) as stranger:
        stranger.sendall(GREETING.replace(b"NULL\x00", b"PLAIN") + b"\x06" + (1 << 40).to_bytes(8, "big"))
        try:
            for _ in range(64):
                stranger.sendall(bytes(1 << 20))
            sent = True
        except (ConnectionResetError, BrokenPipeError):
            sent = False
    assert not sent
    assert process.memory_info().rss - before < 8 << 20
    alive(server)


def test_a_friend_s_message_over_the_limit_ends_its_connection_only(server: FeatureServer) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as connected:
        connected.linger = 0
        connected.plain_username, connected.plain_password = frames.USER, TOKEN.hex().encode()
        connected.connect(server.addresses[1])
        connected.send_multipart(frames.request_frames(0, 1, 1.0, np.zeros(1_000_000, dtype=np.int64)))
        assert not connected.poll(300)
    alive(server)
