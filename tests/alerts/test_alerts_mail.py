from __future__ import annotations

import email
import email.policy
import os
import pathlib
import re
import shutil
import socketserver
import threading
from email.message import EmailMessage

import pytest
from fakes.sink_events import HOSTILE, event, hostile
from hypothesis import given
from hypothesis import strategies as st

from moetuned.alerts import mail
from moetuned.alerts.mail import compose, send
from moetuned.schema.alert import MailAlert
from moetuned.schema.event import EventName

TO = MailAlert(to=["root", "me@example.org"])


def read(data: bytes) -> EmailMessage:
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    assert not message.defects
    return message


def sendmail(tmp_path: pathlib.Path, text: str) -> str:
    path = tmp_path / "sendmail"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def test_the_program_gets_the_mail_and_its_recipients_as_arguments(tmp_path) -> None:
    program = sendmail(
        tmp_path,
        f'printf "%s\\n" "$@" >{tmp_path}/argv; env >{tmp_path}/env; pwd >>{tmp_path}/env; cat >{tmp_path}/mail',
    )
    (result,) = send(event(), MailAlert(to=TO.to, sender="moetuned@example.org", program=program))
    assert (result.ok, result.retry) == (True, False)
    assert result.detail == f"{program} took the mail to root, me@example.org"
    assert (tmp_path / "argv").read_text().split() == [
        "-i",
        "-f",
        "moetuned@example.org",
        "--",
        "root",
        "me@example.org",
    ]
    environment = (tmp_path / "env").read_text().splitlines()
    assert environment[-1] == "/"
    assert {line.partition("=")[0] for line in environment[:-1]} <= {"PATH", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}
    got = read((tmp_path / "mail").read_bytes())
    assert got["To"] == "root, me@example.org"
    assert got["From"] == "moetuned@example.org"
    assert re.fullmatch(r"\[.+\] glm: thrashing", got["Subject"])
    assert "glm thrashes: close firefox" in got.get_content()
    assert "refaults 90 %" in got.get_content()


def test_headers_that_machines_read() -> None:
    got = read(bytes(compose(event(), TO, "box.example.org")))
    assert got["From"] is None
    assert got["Subject"] == "[box.example.org] glm: thrashing"
    assert got["Auto-Submitted"] == "auto-generated"
    assert got["X-Moetuned-Event"] == "thrash_begin"
    assert got["X-Moetuned-Severity"] == "warning"
    assert got["Message-ID"] == "<moetuned-0006a0b1c2d3e4-000001@box.example.org>"
    assert got["Date"].datetime.timestamp() == 1_800_000_000
    assert got.get_content_type() == "text/plain"


def test_begin_and_end_are_one_thread_and_backends_are_not() -> None:
    def thread(name: EventName, backend: str | None = "glm", ended: tuple[str, ...] = ()) -> str:
        return str(read(bytes(compose(event(name, backend=backend, ended=ended), TO, "box")))["References"])

    assert thread(EventName.BACKEND_OOM_KILLED) == thread(EventName.BACKEND_RECOVERED)
    assert thread(EventName.THRASH_BEGIN) == thread(EventName.THRASH_END) != thread(EventName.BACKEND_DOWN)
    assert thread(EventName.BACKEND_NOT_RESTARTED, ended=("a-1",)) == thread(EventName.BACKEND_RESTARTING)
    assert thread(EventName.BACKEND_DOWN, ended=("a-1",)) == thread(EventName.BACKEND_RECOVERED)
    assert len({thread(EventName.THRASH_BEGIN, backend) for backend in ("glm", "qwen", None)}) == 3


def test_a_name_in_another_script_arrives() -> None:
    got = read(bytes(compose(event(backend="größer-模型", message="größer ✓"), TO, "box")))
    assert got["Subject"] == "[box] größer-模型: thrashing"
    assert "größer ✓" in got.get_content()


def test_hostile_texts_add_no_header() -> None:
    plain, got = read(bytes(compose(event(), TO, "box"))), read(bytes(compose(hostile(), TO, HOSTILE)))
    assert sorted(got.keys()) == sorted(plain.keys())
    assert got["To"] == plain["To"]
    assert "Bcc: all@example.org" in got.get_content(), "as text it may stand"


@given(st.text(), st.text(), st.text(), st.text(), st.floats())
def test_any_event_makes_one_bounded_mail(
    message: str, backend: str, identifier: str, machine: str, wall: float
) -> None:
    told = event(message=message, backend=backend, id=identifier, wall_seconds=wall)
    data = bytes(compose(told, TO, machine))
    assert len(data) < 64 << 10
    assert max(map(len, data.splitlines())) <= 998
    got = read(data)
    assert set(got.keys()) == set(read(bytes(compose(event(), TO, "box"))).keys())


@pytest.mark.parametrize(
    ("code", "retry"),
    [(75, True), (69, True), (71, True), (1, True), (64, False), (65, False), (67, False), (77, False), (78, False)],
)
def test_exit_codes_of_sysexits(tmp_path, code: int, retry: bool) -> None:
    program = sendmail(tmp_path, f"echo 'no route to mail' >&2; exit {code}")
    (result,) = send(event(), MailAlert(to=["root"], program=program))
    assert (result.ok, result.retry) == (False, retry)
    assert result.detail == f"{program} ended with code {code}: no route to mail"


def test_a_program_that_hangs_is_ended_and_tried_again(tmp_path) -> None:
    program = sendmail(tmp_path, "sleep 600")
    (result,) = send(event(), MailAlert(to=["root"], program=program, timeout="200ms"))
    assert (result.ok, result.retry) == (False, True)
    assert "took longer than 200ms" in result.detail


def test_a_program_that_reads_nothing_and_dies_is_tried_again(tmp_path) -> None:
    (result,) = send(event(), MailAlert(to=["root"], program=sendmail(tmp_path, "kill -9 $$")))
    assert (result.ok, result.retry) == (False, True)
    assert "was ended by a signal" in result.detail


def test_no_program_is_said_with_the_cure() -> None:
    (result,) = send(event(), MailAlert(to=["root"], program="/nonexistent/sendmail"))
    assert (result.ok, result.retry) == (False, False)
    assert "there is no program /nonexistent/sendmail; install one that sends mail" in result.detail


def test_a_program_that_others_can_write_is_not_run(tmp_path) -> None:
    program = sendmail(tmp_path, f"touch {tmp_path}/ran")
    os.chmod(program, 0o777)
    (result,) = send(event(), MailAlert(to=["root"], program=program))
    assert (result.ok, result.retry) == (False, False)
    assert "can be written by others than root" in result.detail
    assert not (tmp_path / "ran").exists()


class _Smtp(socketserver.StreamRequestHandler):
    """As much of a mail server (RFC 5321) as takes one mail."""

    def handle(self) -> None:
        self.wfile.write(b"220 test ESMTP\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.mails.append(b"".join(each.removeprefix(b".") for each in lines))  # type: ignore[attr-defined]
            elif word in (b"MAIL", b"RCPT"):
                self.server.envelope.append(line.strip().decode())  # type: ignore[attr-defined]
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return


def test_a_real_sendmail_delivers_it(tmp_path) -> None:
    program = shutil.which("msmtp")
    if program is None:
        pytest.skip("there is no msmtp here; install msmtp to try a real one")
    with socketserver.TCPServer(("127.0.0.1", 0), _Smtp) as server:
        server.mails, server.envelope = [], []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        settings = tmp_path / "msmtprc"
        settings.write_text(
            f"account default\nhost 127.0.0.1\nport {server.server_address[1]}\nfrom moetuned@example.org\nauth off\ntls off\nset_msgid_header off\n"
        )
        wrapper = sendmail(tmp_path, f'exec {program} --file={settings} "$@"')
        (result,) = send(
            event(backend="größer", message="one\n.\nBcc: all@example.org"),
            MailAlert(to=["me@example.org"], program=wrapper),
        )
        thread.join(30)
        assert result.ok, result.detail
        (data,) = server.mails  # type: ignore[attr-defined]
        assert [line for line in server.envelope if line.upper().startswith("RCPT")] == ["RCPT TO:<me@example.org>"]  # type: ignore[attr-defined]
    got = read(data)
    assert got["Subject"].endswith("größer: thrashing")
    assert got["Bcc"] is None
    assert "one . Bcc: all@example.org" in got.get_content()


def test_a_real_sendmail_that_reaches_nobody_is_tried_again(tmp_path) -> None:
    program = shutil.which("msmtp")
    if program is None:
        pytest.skip("there is no msmtp here; install msmtp to try a real one")
    settings = tmp_path / "msmtprc"
    settings.write_text("account default\nhost 127.0.0.1\nport 1\nfrom moetuned@example.org\nauth off\ntls off\n")
    (result,) = send(
        event(), MailAlert(to=["me@example.org"], program=sendmail(tmp_path, f'exec {program} --file={settings} "$@"'))
    )
    assert (result.ok, result.retry) == (False, True)


def test_whom_it_tells() -> None:
    assert mail.target(TO) == "root, me@example.org"
