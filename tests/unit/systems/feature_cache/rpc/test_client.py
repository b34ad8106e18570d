"""A feature client: rows, refusals, timeouts and closing."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import psutil
import pytest

from dtdg_lab.core.errors import PlanError, RunFailedError
from dtdg_lab.network.links import LinkState
from dtdg_lab.systems.feature_cache.pipeline.fetching import Fetcher
from dtdg_lab.systems.feature_cache.rpc.client import FeatureClient
from dtdg_lab.systems.feature_cache.rpc.server import FeatureServer
from tests.feature_servers import KEYS, PARTS, ROWS, TOKEN, F, K, links


def test_rows_arrive_in_the_order_of_the_requested_keys(client: FeatureClient) -> None:
    fetcher: Fetcher = client
    for seed in range(5):
        places = {owner: np.random.default_rng(seed + owner).permutation(K)[: 10**seed] for owner in (2, 1)}
        replies = fetcher.fetch({owner: KEYS[owner][place] for owner, place in places.items()})
        assert list(replies) == [2, 1]
        for owner, place in places.items():
            assert replies[owner].rows.dtype == np.float32
            assert replies[owner].rows.flags.aligned
            assert np.array_equal(replies[owner].rows, ROWS[owner][place])
            assert replies[owner].owner == owner
            assert 0 < replies[owner].rtt_s < 5


def test_both_sides_count_the_same_requests_and_bytes(own: FeatureServer) -> None:
    counted = {}
    for part in (0, 2):
        with FeatureClient(part, own.addresses, TOKEN, F) as client:
            for rows in (1, 10, 3000):
                replies = client.fetch({1: KEYS[1][:rows]})
                assert rows * (8 + 4 * F) < replies[1].nbytes < rows * (8 + 4 * F) + 200
            counted[1, part] = (client.rpcs, client.bytes_sent + client.bytes_received)
    assert own.served() == counted
    assert counted[1, 0][0] == 3
    assert own.dropped() == 0


def test_many_threads_each_with_its_own_client(server: FeatureServer) -> None:
    wrong: list[BaseException | int] = []

    def ask(part: int) -> None:
        random = np.random.default_rng(part)
        try:
            with FeatureClient(part, server.addresses, TOKEN, F) as client:
                for _ in range(20):
                    places = {owner: random.permutation(K)[:200] for owner in range(PARTS) if owner != part}
                    replies = client.fetch({owner: KEYS[owner][place] for owner, place in places.items()})
                    wrong.extend(
                        owner for owner in places if not np.array_equal(replies[owner].rows, ROWS[owner][places[owner]])
                    )
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(part,)) for part in (0, 1, 2, 7, 8, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


@pytest.mark.slow
def test_a_reply_of_240_megabytes_comes_whole_and_others_have_their_turn_meanwhile() -> None:
    rows, keys = np.zeros((100_000, 602), dtype=np.float32), np.arange(100_000, dtype=np.int64)
    rows[:, 0] = keys
    with (
        FeatureServer({1: rows}, {1: keys}, TOKEN) as server,
        FeatureClient(0, server.addresses, TOKEN, 602) as large,
        FeatureClient(2, server.addresses, TOKEN, 602) as small,
    ):
        order = np.random.default_rng(0).permutation(100_000)
        rtts, done = [], threading.Event()

        def ask() -> None:
            while not done.is_set():
                rtts.append(small.fetch({1: keys[:10]})[1].rtt_s)

        asking = threading.Thread(target=ask)
        asking.start()
        reply = large.fetch({1: keys[order]})[1]
        done.set()
        asking.join()
    assert np.array_equal(reply.rows[:, 0], order)
    assert max(rtts) < reply.rtt_s / 2


def test_a_slow_link_is_not_taken_for_a_dead_owner(server: FeatureServer) -> None:
    server.set_links(links({}, {(1, 0): 1000 * F * 4 / 2.5}))
    with FeatureClient(0, server.addresses, TOKEN, F, 1.0) as hasty:
        reply = hasty.fetch({1: KEYS[1][:1000]})[1]
    assert 2.5 <= reply.rtt_s < 6
    assert np.array_equal(reply.rows, ROWS[1][:1000])


def test_a_killed_server_is_named_at_once(own: FeatureServer) -> None:
    own.set_links(links({(1, 2): 30.0}))
    with FeatureClient(2, own.addresses, TOKEN, F, 20.0, parts_per_rank=1) as client:
        threading.Timer(0.3, os.kill, (own.pid, signal.SIGKILL)).start()
        begin_s = time.perf_counter()
        with pytest.raises(RunFailedError, match=r"part 1 \(rank 1\) has exited.* \d\.\d s after .* 7 row"):
            client.fetch({1: KEYS[1][:7]})
        assert time.perf_counter() - begin_s < 5
        with pytest.raises(RunFailedError, match=r"part 0 \(rank 0\) has exited"):
            client.fetch({0: KEYS[0][:7]})
    deadline_s = time.monotonic() + 5
    with pytest.raises(RunFailedError, match=r"part\(s\) \[0, 1, 2\] was ended by SIGKILL"):
        while time.monotonic() < deadline_s:  # its connections end a moment before it does
            own.check()
    with pytest.raises(RunFailedError, match="was ended by SIGKILL"):
        own.served()


def test_a_stopped_server_times_out(own: FeatureServer) -> None:
    with FeatureClient(0, own.addresses, TOKEN, F, parts_per_rank=2) as client:
        client.fetch({2: KEYS[2][:7]})
        client._timeout_s, own._timeout_s = 0.5, 0.3
        os.kill(own.pid, signal.SIGSTOP)
        begin_s = time.perf_counter()
        with pytest.raises(RunFailedError, match=r"part 2 \(rank 1\) was silent for \d+\.\d s"):
            client.fetch({2: KEYS[2][:7]})
        assert time.perf_counter() - begin_s < 4
        own.check()
        with pytest.raises(RunFailedError, match=r"has not replied for 0\.3 s"):
            own.set_links(LinkState.clean(PARTS))
        begin_s = time.perf_counter()
        own.close()
        assert time.perf_counter() - begin_s < 3


def test_a_late_reply_is_not_taken_for_the_next_request(own: FeatureServer) -> None:
    with FeatureClient(0, own.addresses, TOKEN, F) as client:
        client.fetch({1: KEYS[1][:3]})
        patient_s, client._timeout_s = client._timeout_s, 0.3
        os.kill(own.pid, signal.SIGSTOP)
        with pytest.raises(RunFailedError, match="was silent for"):
            client.fetch({1: KEYS[1][:3]})
        os.kill(own.pid, signal.SIGCONT)
        client._timeout_s = patient_s
        time.sleep(0.2)
        replies = client.fetch({1: KEYS[1][3:6], 2: KEYS[2][:2]})
        assert np.array_equal(replies[1].rows, ROWS[1][3:6])


@pytest.mark.parametrize("wanted", [KEYS[1][:2], np.array([-5]), np.array([10**15]), np.array([2**63 - 1])])
def test_unknown_keys_are_refused_by_name_and_the_server_goes_on(client: FeatureClient, wanted: np.ndarray) -> None:
    with pytest.raises(RunFailedError, match=rf"part 2 .*no row for .*{wanted[0]}"):
        client.fetch({2: np.concatenate([KEYS[2][:5], wanted])})
    assert np.array_equal(client.fetch({2: KEYS[2][:5]})[2].rows, ROWS[2][:5])


def test_requests_for_too_many_or_no_rows_are_rejected(client: FeatureClient) -> None:
    with pytest.raises(RunFailedError, match=r"a request for 4,001 rows, but the part has 4,000"):
        client.fetch({1: np.append(KEYS[1], KEYS[1][0])})
    with pytest.raises(RunFailedError, match="a request for 0 rows"):
        client.fetch({1: KEYS[1][:0]})
    with pytest.raises(PlanError, match=r"part 0 cannot request from part 9: known are \[1, 2\]"):
        client.fetch({9: KEYS[1]})
    with pytest.raises(PlanError, match="part 0 cannot request from part 0"):
        client.fetch({0: KEYS[0]})
    assert client.fetch({}) == {}


def test_rows_of_another_width_are_not_taken(server: FeatureServer) -> None:
    with (
        FeatureClient(0, server.addresses, TOKEN, F + 1) as client,
        pytest.raises(RunFailedError, match=r"did not send .*3 rows of 51 floats"),
    ):
        client.fetch({1: KEYS[1][:3]})


def test_a_wrong_token_is_rejected(own: FeatureServer) -> None:
    with (
        FeatureClient(0, own.addresses, b"x" * 32, F, 3.0) as client,
        pytest.raises(RunFailedError, match=r"part 1 .* does not accept this run's token"),
    ):
        client.fetch({1: KEYS[1][:3]})
    assert own.dropped() >= 1
    assert own.served() == {}


def test_a_part_without_vertices_is_served() -> None:
    rows, keys = {1: ROWS[1][:0], 2: ROWS[2]}, {1: KEYS[1][:0], 2: KEYS[2]}
    with FeatureServer(rows, keys, TOKEN) as server, FeatureClient(0, server.addresses, TOKEN, F) as client:
        assert len(client.fetch({2: KEYS[2][:3]})[2].rows) == 3
        with pytest.raises(RunFailedError, match="a request for 1 rows, but the part has 0"):
            client.fetch({1: KEYS[1][:1]})


def test_close_wakes_a_waiting_thread(own: FeatureServer) -> None:
    own.set_links(links({(1, 0): 60.0}))
    client, ended = FeatureClient(0, own.addresses, TOKEN, F, 30.0), []

    def ask() -> None:
        try:
            client.fetch({1: KEYS[1][:3]})
        except RunFailedError as error:
            ended.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.1)
    begin_s = time.perf_counter()
    client.close()
    asking.join(5)
    own.close()
    own.close()
    client.close()
    assert time.perf_counter() - begin_s < 3
    assert ended == ["the client of part 0 was closed during requests to parts [1]."]
    with pytest.raises(RunFailedError, match="are closed"):
        client.fetch({1: KEYS[1][:3]})
    with pytest.raises(RunFailedError, match="was closed"):
        own.served()
    assert not psutil.pid_exists(own.pid)
