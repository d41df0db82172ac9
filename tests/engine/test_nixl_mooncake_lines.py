"""Lines between ring neighbors: strangers stay out, a death is seen at once, reasons are passed on."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

import pytest

pytest.importorskip("torch")

from actor_wg_engine.errors import (
    EngineError,
    PeerLostError,
    SyncAbortedError,
    SyncTimeoutError,
    WireError,
)
from actor_wg_engine.lines import Hello, Line, LineListener, dial
from actor_wg_engine.waiting import AbortFlag, Deadline

GROUP = "s:1"


@pytest.fixture
def listener():
    with contextlib.closing(LineListener("127.0.0.1")) as listening:
        yield listening


@pytest.fixture
def pair():
    left, right = socket.socketpair(socket.AF_UNIX)
    ends = [_over(left, "group rank 1"), _over(right, "group rank 0")]
    yield ends
    for end in ends:
        end.close()


def _over(connection, peer):
    """Lines are TCP; over a Unix pair the option that only TCP has is left out."""

    class Quiet(socket.socket):
        def setsockopt(self, *_):
            return None

    return Line(Quiet(fileno=connection.detach()), peer)


def until(line, what):
    end = time.monotonic() + 5
    while time.monotonic() < end:
        line.poll()
        found = what()
        if found is not None:
            return found
    raise AssertionError("nothing arrived")


def test_the_right_hello_opens_a_line(listener):
    caller = dial("127.0.0.1", listener.port, Hello(listener.token, GROUP, 0), 1, Deadline(5))
    accepted = listener.accept(GROUP, 0, AbortFlag(), Deadline(5))
    caller.send_header(b"x" * 100_000, Deadline(5))
    assert until(accepted, accepted.header) == b"x" * 100_000
    accepted.send_statuses({1: "", 2: "broken"}, Deadline(5))
    assert until(caller, caller.statuses) == {1: "", 2: "broken"}


@pytest.mark.parametrize(
    "hello",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 10_000,
        json.dumps({"token": "0" * 32, "group": GROUP, "rank": 0}).encode() + b"\n",
        json.dumps({"token": "\u00e4", "group": GROUP, "rank": 0}).encode() + b"\n",
        json.dumps([1, 2]).encode() + b"\n",
    ],
)
def test_a_stranger_is_turned_away_and_the_neighbor_still_gets_in(listener, hello):
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(hello)
        stranger.shutdown(socket.SHUT_WR)
        neighbor = dial("127.0.0.1", listener.port, Hello(listener.token, GROUP, 0), 1, Deadline(5))
        assert not listener.accept(GROUP, 0, AbortFlag(), Deadline(5)).gone
        neighbor.close()


@pytest.mark.parametrize(("group", "rank"), [("s:0", 0), (GROUP, 2)])
def test_the_line_of_another_group_or_rank_is_turned_away(listener, group, rank):
    caller = dial("127.0.0.1", listener.port, Hello(listener.token, group, rank), 1, Deadline(5))
    with pytest.raises(SyncTimeoutError, match="group rank 0"):
        listener.accept(GROUP, 0, AbortFlag(), Deadline(0.3))
    caller.close()


def test_waiting_for_a_neighbor_can_be_aborted(listener):
    flag = AbortFlag()
    threading.Timer(0.05, flag.set).start()
    with pytest.raises(SyncAbortedError):
        listener.accept(GROUP, 0, flag, Deadline(30))


def test_nobody_listening_is_an_error_that_names_the_rank():
    with contextlib.closing(LineListener("127.0.0.1")) as gone:
        port = gone.port
    with pytest.raises(PeerLostError, match="group rank 4 cannot be reached"):
        dial("127.0.0.1", port, Hello("t", GROUP, 3), 4, Deadline(5))


def test_a_peer_that_closes_without_a_word_is_lost(pair):
    pair[1].close()
    with pytest.raises(PeerLostError, match="group rank 1 is gone"):
        pair[0].poll()


def test_a_peer_that_says_good_bye_is_gone_but_not_lost(pair):
    pair[1].send_statuses({1: ""}, Deadline(5))
    pair[1].end()
    pair[1].close()
    pair[0].poll()
    assert pair[0].gone
    assert pair[0].statuses() == {1: ""}


@pytest.mark.parametrize("kind", [EngineError, PeerLostError, SyncTimeoutError, WireError])
def test_the_reason_of_a_failure_arrives_with_its_kind_and_text(pair, kind):
    pair[1].end(kind("group rank 3: the disk is full"))
    with pytest.raises(kind, match="group rank 3: the disk is full"):
        pair[0].poll()


def test_a_frame_that_no_engine_sends_is_an_error(pair):
    pair[1]._socket.send(b"\xff\xff\xff\xff\x01")
    with pytest.raises(PeerLostError, match="frame of 4294967295 bytes"):
        pair[0].poll()


@pytest.mark.parametrize("body", [b"no json", b"[1]", b'{"x": ""}'])
def test_statuses_that_are_none_are_an_error(pair, body):
    pair[1]._send(body, 2, Deadline(5))
    with pytest.raises(PeerLostError):
        pair[0].poll()
