from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import socket
from collections.abc import Iterator

import pytest
from fakes.desktop_session import DesktopSession, desktop_session, somebody
from fakes.sink_events import event, hostile

from moetuned.alerts import desktop
from moetuned.alerts.desktop import send, sessions
from moetuned.schema.alert import DesktopAlert
from moetuned.schema.event import EventName

needs_busctl = pytest.mark.skipif(shutil.which("busctl") is None, reason="there is no busctl here; install systemd")


@pytest.fixture(autouse=True)
def nothing_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desktop, "_shown", {})


@pytest.fixture
def session() -> Iterator[DesktopSession]:
    with desktop_session() as session:
        yield session


def named(session: DesktopSession) -> DesktopAlert:
    return DesktopAlert(users=[session.user.pw_name], timeout="30s")


@needs_busctl
def test_the_user_sees_it_and_no_root_speaks_to_their_bus(session: DesktopSession) -> None:
    session.serve("body", "body-markup")
    (result,) = send(event(), named(session), session.run_user)
    assert (result.target, result.ok, result.detail) == (
        session.user.pw_name,
        True,
        f"{session.user.pw_name} was shown thrash_begin",
    )
    shown = session.until_notified()
    assert shown["uid"] == session.user.pw_uid
    assert (shown["app"], shown["replaces"], shown["icon"]) == ("moetuned", 0, "dialog-warning")
    assert (shown["summary"], shown["body"]) == ("glm: thrashing", "glm thrashes: close firefox")
    assert (shown["actions"], shown["hints"], shown["expires"]) == ([], {"urgency": 1}, -1)


@needs_busctl
@pytest.mark.parametrize(
    ("name", "urgency", "icon"),
    [
        (EventName.BACKEND_DOWN, 2, "dialog-error"),
        (EventName.THRASH_BEGIN, 1, "dialog-warning"),
        (EventName.TEST, 0, "dialog-information"),
    ],
)
def test_the_urgency_is_how_bad_it_is(session: DesktopSession, name: EventName, urgency: int, icon: str) -> None:
    session.serve("body")
    assert send(event(name), named(session), session.run_user)[0].ok
    shown = session.until_notified()
    assert (shown["hints"], shown["icon"]) == ({"urgency": urgency}, icon)


@needs_busctl
def test_the_end_takes_the_place_of_the_begin(session: DesktopSession) -> None:
    session.serve("body")
    for name, backend in (
        (EventName.BACKEND_DOWN, "qwen"),
        (EventName.BACKEND_OOM_KILLED, "glm"),
        (EventName.BACKEND_RECOVERED, "glm"),
    ):
        assert send(event(name, backend=backend), named(session), session.run_user)[0].ok
    first, begin, end = (session.until_notified() for _ in range(3))
    assert (first["replaces"], begin["replaces"]) == (0, 0)
    assert end["replaces"] == begin["number"] != first["number"]
    assert (end["summary"], end["hints"]) == ("glm: up again", {"urgency": 0})
    assert send(event(EventName.BACKEND_RECOVERED), named(session), session.run_user)[0].ok
    assert session.until_notified()["replaces"] == 0, "what it told of is gone"


@needs_busctl
def test_one_end_of_two_things_leaves_one_notification(session: DesktopSession) -> None:
    session.serve("body")
    for name in (EventName.MEMORY_NEAR_LIMIT, EventName.RELIEF_EXHAUSTED, EventName.MEMORY_RECOVERED):
        assert send(event(name), named(session), session.run_user)[0].ok
    near, exhausted, end, closed = (session.until_notified() for _ in range(4))
    assert end["replaces"] == near["number"]
    assert (closed["method"], closed["number"]) == ("CloseNotification", exhausted["number"])


@needs_busctl
def test_a_desktop_that_was_started_again_knows_no_old_number(session: DesktopSession) -> None:
    session.serve("body")
    assert send(event(), named(session), session.run_user)[0].ok
    session.serve("body")
    assert send(event(EventName.THRASH_END), named(session), session.run_user)[0].ok
    assert session.until_notified()["replaces"] == 0


@needs_busctl
@pytest.mark.parametrize(
    ("capability", "written"), [("body-markup", "&lt;b&gt;bold&lt;/b&gt; &amp; "), ("body", "<b>bold</b> & ")]
)
def test_texts_are_data(
    session: DesktopSession, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capability: str, written: str
) -> None:
    monkeypatch.chdir(tmp_path)
    session.serve(capability)
    assert send(hostile(), named(session), session.run_user)[0].ok
    shown = session.until_notified()
    assert written in shown["body"]
    assert "\n" not in shown["body"] + shown["summary"]
    assert shown["actions"] == []
    assert not (tmp_path / "pwned").exists()


@needs_busctl
@pytest.mark.parametrize("text", ["-1", "--help", "", "as 3 a b c"])
def test_no_text_is_an_option_or_another_argument(session: DesktopSession, text: str) -> None:
    session.serve("body")
    assert send(event(message=text, backend=text), named(session), session.run_user)[0].ok
    assert session.until_notified()["body"] == text


@needs_busctl
def test_a_bus_without_a_desktop_is_told_and_not_tried_again(session: DesktopSession) -> None:
    (result,) = send(event(), named(session), session.run_user)
    assert (result.ok, result.retry) == (False, False)
    assert f"{session.user.pw_name} could not be shown thrash_begin: Call failed" in result.detail


@needs_busctl
def test_a_service_that_hangs_takes_no_longer_than_the_timeout() -> None:
    user = somebody()
    with desktop_session() as session, socket.socket(socket.AF_UNIX) as silent:
        os.unlink(session.path)
        silent.bind(session.path)
        silent.listen()
        os.chown(session.path, user.pw_uid, user.pw_gid)
        (result,) = send(event(), DesktopAlert(users=[user.pw_name], timeout="300ms"), session.run_user)
    assert (result.ok, result.retry) == (False, False)
    assert "it took too long" in result.detail


@needs_busctl
def test_who_has_no_desktop_is_no_word_where_somebody_saw_it(
    session: DesktopSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.serve("body")
    (known,) = sessions(named(session).users, session.run_user)
    elsewhere = desktop.Session("over-ssh", known.identity, "/nonexistent", (0, 0))
    monkeypatch.setattr(desktop, "sessions", lambda *_: [elsewhere, known])
    assert [result.target for result in send(event(), DesktopAlert(timeout="30s"), session.run_user)] == [
        session.user.pw_name
    ]
    assert [
        result.ok for result in send(event(), DesktopAlert(users=["over-ssh", "x"], timeout="30s"), session.run_user)
    ] == [False, True]


def test_nobody_is_logged_in(tmp_path: pathlib.Path) -> None:
    for run_user in (str(tmp_path), "/nonexistent"):
        (result,) = send(event(), DesktopAlert(), run_user)
        assert (result.ok, result.retry) == (False, False)
        assert result.detail == "nobody is logged in to a desktop: nothing is shown"
    (result,) = send(event(), DesktopAlert(users=["ann", "bob"]), str(tmp_path))
    assert result.detail == "none of ann, bob is logged in to a desktop: nothing is shown"


def bus(run_user: pathlib.Path, uid: int, owner: int | None = None) -> None:
    (run_user / str(uid)).mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(run_user / str(uid) / "bus"))
    if owner is not None:
        os.chown(run_user / str(uid) / "bus", owner, owner)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make other users' sockets")
def test_who_is_told_by_root(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = {0: "root", 120: "greeter", 1000: "ann", 1001: "bob", 1002: "eve", 65534: "nobody"}

    def account(uid: int) -> pwd.struct_passwd:
        return pwd.struct_passwd((accounts[uid], "x", uid, uid, "", "/", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwuid", account)
    monkeypatch.setattr(os, "getgrouplist", lambda name, group: [group, 44])
    for uid in (0, 120, 1000, 1001, 65534, 4242):
        bus(tmp_path, uid, uid)
    bus(tmp_path, 1002, 1001)  # not eve's
    (tmp_path / "1003").mkdir()
    (tmp_path / "1003" / "bus").write_text("no socket")
    (tmp_path / "01000").mkdir()
    assert [each.user for each in sessions([], str(tmp_path))] == ["ann", "bob"]
    (ann,) = sessions(["ann", "eve"], str(tmp_path))
    assert ann.identity == desktop.Identity(1000, 1000, (1000, 44))
    assert [each.user for each in sessions(["nobody", "greeter"], str(tmp_path))] == ["greeter", "nobody"]


def test_who_is_no_root_tells_only_themselves(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    bus(tmp_path, own)
    monkeypatch.setattr(
        pwd, "getpwuid", lambda uid: pwd.struct_passwd((f"user{uid}", "x", uid, uid, "", "/", "/bin/sh"))
    )
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert sessions([], str(tmp_path)) == []
    monkeypatch.setattr(os, "geteuid", lambda: own or 4242)
    assert [each.user for each in sessions([], str(tmp_path))] == ([f"user{own}"] if own else [])


def program(directory: pathlib.Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def test_notify_send_where_there_is_no_busctl(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    bus(tmp_path, own)
    out = tmp_path / "out"
    found = {
        "notify-send": program(
            tmp_path, "notify-send", f'printf "%s\\n" "$@" >{out}; echo "$DBUS_SESSION_BUS_ADDRESS" >>{out}'
        )
    }
    monkeypatch.setattr(desktop, "find_program", found.get)
    user = pwd.getpwuid(own).pw_name
    (result,) = send(event(message="<b>-x</b>"), DesktopAlert(users=[user]), str(tmp_path))
    assert result.ok, result.detail
    assert out.read_text().splitlines() == [
        "--app-name=moetuned", "--urgency=normal", "--icon=dialog-warning", "--", "glm: thrashing", "&lt;b&gt;-x&lt;/b&gt;",
        f"unix:path={tmp_path}/{own}/bus",
    ]  # fmt: skip
    monkeypatch.setattr(desktop, "find_program", {}.get)
    (result,) = send(event(), DesktopAlert(users=[user]), str(tmp_path))
    assert "there is neither busctl nor notify-send" in result.detail


def test_whom_it_tells() -> None:
    assert desktop.target(DesktopAlert()) == "everybody who is logged in"
    assert desktop.target(DesktopAlert(users=["ann", "bob"])) == "ann, bob"
