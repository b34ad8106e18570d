"""Slow links by the kernel: the commands, and what they do on a loopback device of a namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.core.errors import ConfigError, DataError, NotAvailableError
from dtdg_lab.network import netem as traffic_control
from dtdg_lab.network.links import LinkState, parse_links
from dtdg_lab.network.netem import NetemLinks, NetemMark, marks, undo_left_over
from tests import netem_in_namespace
from tests.netem_in_namespace import MBIT, MEGABYTE

DEFAULT = ["noqueue", "0:"]


@cache
def _namespaces() -> str:
    """Why no namespace can be made here; empty where one can."""
    if not traffic_control.may_administer():
        return "needs CAP_NET_ADMIN"
    try:
        traffic_control.root_queue("lo")
        done = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    except (NotAvailableError, FileNotFoundError) as error:
        return f"needs unshare, ip and tc: {error}"
    return done.stderr.decode().strip() if done.returncode else ""


def _do(task: str, folder: Path) -> dict[str, Any]:
    if lack := _namespaces():
        pytest.skip(f"no network namespace can be made here: {lack}")
    command = ["unshare", "--net", sys.executable, netem_in_namespace.__file__, task, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# commands


def _dry(**given: Any) -> NetemLinks:
    return NetemLinks("lo", {1: 5001, 0: 5000}, "/nowhere", dry_run=True, **given)


def test_a_dry_run_tells_the_exact_commands_and_changes_nothing() -> None:
    with _dry() as links:
        started = len(links.commands)
        links.set_links(parse_links("0>1 delay=20 rate=25; 1>0 delay=0.5", 2))
        changed = len(links.commands)
    described = [" ".join(command) for command in links.commands]
    bucket = "burst 65536b cburst 65536b quantum 65536"
    assert described[0] == "tc qdisc add dev lo root handle d7d6: htb default 0"
    assert described[4:started] == [
        f"tc class add dev lo parent d7d6: classid d7d6:2 htb rate {10**11}bit ceil {10**11}bit burst 12500000b cburst "
        "12500000b quantum 65536",
        "tc qdisc add dev lo parent d7d6:2 handle 1002: netem delay 0us limit 100000",
        "tc filter add dev lo parent d7d6: protocol ip prio 1 u32 match ip protocol 6 0xff match ip sport 5001 0xffff "
        "flowid d7d6:2",
    ]
    assert described[started:changed] == [
        f"tc class change dev lo parent d7d6: classid d7d6:1 htb rate 25000000bit ceil 25000000bit {bucket}",
        "tc qdisc change dev lo parent d7d6:1 handle 1001: netem delay 20000us limit 100000",
        "tc qdisc change dev lo parent d7d6:2 handle 1002: netem delay 500us limit 100000",
    ]
    assert described[changed:] == ["tc qdisc del dev lo root handle d7d6:"]
    assert not Path("/nowhere").exists()


def test_only_what_differs_is_changed() -> None:
    with _dry() as links:
        state = parse_links("0>1 delay=20", 2)
        links.set_links(state)
        before = len(links.commands)
        links.set_links(state)
        assert len(links.commands) == before
        links.set_links(parse_links("", 2))
        assert len(links.commands) == before + 1


def test_without_delays_the_kernel_needs_no_netem() -> None:
    with _dry(delays=False) as links:
        links.set_links(parse_links("0 rate=10", 2))
        assert not any("netem" in command for command in links.commands)
        with pytest.raises(
            ConfigError, match="a delay of 3 ms is not possible: traffic control was set up for rates only"
        ):
            links.set_links(parse_links("0 delay=3", 2))


def test_requesters_are_told_apart_by_their_addresses() -> None:
    addresses = {0: "10.0.0.1", 1: "10.0.0.2", 2: "10.0.0.2"}
    with NetemLinks("eth0", {0: 5000}, "/nowhere", addresses=addresses, dry_run=True) as links:
        before = len(links.commands)
        links.set_links(parse_links("0>1 delay=7; 0>2 delay=7", 3))
        described = [" ".join(command) for command in links.commands]
        assert described[before:] == [
            "tc qdisc change dev eth0 parent d7d6:2 handle 1002: netem delay 7000us limit 100000"
        ]
        assert "sport 5000 0xffff match ip dst 10.0.0.2/32 flowid d7d6:2" in described[before - 1]
        with pytest.raises(ConfigError, match="links of part 0 differ between parts 1, 2"):
            links.set_links(parse_links("0>1 delay=7", 3))
    with _dry() as links, pytest.raises(ConfigError, match=r"\(as '0 delay=\.\.\.' does\)"):
        links.set_links(parse_links("0>1 rate=7", 3))


@pytest.mark.parametrize("ports", [{}, {0: 5000, 1: 5000}])
def test_ports_must_be_those_of_one_part_each(ports: dict[int, int]) -> None:
    with pytest.raises(ConfigError, match="Give each served part its own port"):
        NetemLinks("lo", ports, "/nowhere")


def test_a_part_that_the_links_lack_is_refused() -> None:
    links = NetemLinks("lo", {3: 5000}, "/nowhere", dry_run=True)
    with links, pytest.raises(ConfigError, match="links of 2 parts, but a server's or requester's part is 3"):
        links.set_links(LinkState.clean(2))


# what a machine lacks


def test_a_process_without_the_right_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(traffic_control, "may_administer", lambda: False)
    with pytest.raises(NotAvailableError, match=r"CAP_NET_ADMIN.*congestion_by=emulated"):
        NetemLinks("lo", {0: 5000}, tmp_path).start()
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_tc_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(traffic_control, "may_administer", lambda: True)
    monkeypatch.setattr(traffic_control.shutil, "which", lambda *_, **__: None)
    with pytest.raises(NotAvailableError, match=r"tc is not installed\. Install it"):
        NetemLinks("lo", {0: 5000}, tmp_path).start()
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(traffic_control, "may_administer", lambda: True)
    with pytest.raises(NotAvailableError, match=r"no network device 'lo7' here; there are: .*lo"):
        NetemLinks("lo7", {0: 5000}, tmp_path).start()


def test_nothing_is_changed_where_no_mark_can_be_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(traffic_control, "check_device", lambda _: None)
    monkeypatch.setattr(traffic_control, "run", lambda command: pytest.fail(f"ran {command}"))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="needs for clean-up"):
        NetemLinks("lo", {0: 5000}, tmp_path / "file").start()


# marks


def test_marks_know_whether_their_process_lives(tmp_path: Path) -> None:
    own = NetemMark.own("lo")
    own.write(tmp_path)
    assert list(marks(tmp_path)) == [own] and own.is_alive and own.is_here
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    dead = NetemMark("lo", own.space, child.pid, own.started_s, own.boot)
    assert not dead.is_alive, "a number used again is another process"
    child.wait()
    assert not dead.is_alive
    assert not NetemMark("lo", own.space + 1, os.getpid(), own.started_s, own.boot).is_here
    assert undo_left_over(tmp_path) == [] and list(marks(tmp_path)) == [own]


def test_a_damaged_mark_is_named(tmp_path: Path) -> None:
    (tmp_path / "netem-lo-1.json").write_text("{}")
    with pytest.raises(DataError, match=r"netem-lo-1.json is damaged.*tc qdisc show"):
        undo_left_over(tmp_path)
    assert undo_left_over(tmp_path / "none") == []


# on a device


def test_a_rate_holds_on_its_port_alone_and_is_undone(tmp_path: Path) -> None:
    found = _do("rates", tmp_path / "state")
    expected_s = MEGABYTE * 8e-6 / MBIT
    assert found["slow_s"] == pytest.approx(expected_s, rel=0.15)
    assert found["other_s"] < 0.25 * expected_s and found["clean_s"] < 0.25 * expected_s
    assert found["queue"] == ["htb", "d7d6:"]
    assert found["after"] == DEFAULT and found["left"] == []


def test_delays_shift_round_trips_by_their_setting(tmp_path: Path) -> None:
    if described := _do("lacking", tmp_path / "probe")["told"]:
        pytest.skip(described)
    found = _do("delays", tmp_path / "state")
    for delay_ms, (slow_s, other_s) in found["shift_s"].items():
        assert slow_s * 1e3 == pytest.approx(float(delay_ms), rel=0.15)
        assert other_s * 1e3 < 0.25 * float(delay_ms)
    assert found["after"] == DEFAULT


def test_a_start_that_the_kernel_refuses_leaves_nothing(tmp_path: Path) -> None:
    found = _do("lacking", tmp_path / "state")
    if found["told"]:
        assert "kernel lacks netem (sch_netem)" in found["told"]
    assert found["after"] == DEFAULT and found["left"] == []


def test_a_queue_of_others_is_never_touched(tmp_path: Path) -> None:
    found = _do("foreign", tmp_path / "state")
    assert "queue htb 9: that is not this program's, and stays untouched" in found["told"]
    assert found["after"] == ["htb", "9:"] and found["undone"] == found["left"] == []


def test_what_a_killed_process_leaves_is_undone_at_the_next_start(tmp_path: Path) -> None:
    found = _do("killed", tmp_path / "state")
    assert found["while_alive"] == [] and found["queue"] == ["htb", "d7d6:"]
    assert "another run's" in found["told"]
    assert found["left"] == ["htb", "d7d6:"] and len(found["marked"]) == 1
    assert found["undone"] == ["lo"] and found["after"] == DEFAULT
    assert found["again"] == ["htb", "d7d6:"] and found["files"] == []


def test_a_process_that_just_ends_undoes_what_it_did(tmp_path: Path) -> None:
    assert _do("ends", tmp_path / "state") == {"rc": 3, "after": DEFAULT, "left": []}
