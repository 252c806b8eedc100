from __future__ import annotations

import errno
from pathlib import Path

import pytest

from moetuned.host import rehearsal_answers
from moetuned.host.rehearsal_answers import cure_of_sandbox, of_error, open_for_writing
from moetuned.schema.capability import Answer


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (errno.EPERM, Answer.NO),
        (errno.EACCES, Answer.NO),
        (errno.EROFS, Answer.NO),
        (errno.EAFNOSUPPORT, Answer.NO),
        (errno.ENOENT, Answer.UNKNOWN),
        (errno.EIO, Answer.UNKNOWN),
        (errno.ENOMEM, Answer.UNKNOWN),
        (None, Answer.UNKNOWN),
    ],
)
def test_a_refusal_is_no_and_all_else_is_not_known(number: int | None, answer: Answer) -> None:
    found = of_error(OSError(number, "Some reason"), "/x", "mend it")
    assert found.answer is answer
    assert found.why == "/x: some reason"
    assert found.cure == ("mend it" if answer is Answer.NO else "")


def test_a_call_that_the_kernel_has_not_is_told_as_that() -> None:
    found = of_error(OSError(errno.ENOSYS, "Function not implemented"), "call(2)", "CAP_X in CapabilityBoundingSet=")
    assert found.answer is Answer.NO
    assert "this kernel is too old for it" in found.why
    assert "CAP_X" not in found.cure


@pytest.mark.parametrize(
    ("number", "booted", "inside", "container"),
    [
        (errno.EROFS, False, False, True),  # docker: no systemd
        (errno.EROFS, True, True, True),  # a systemd in a container
        (errno.EROFS, True, False, False),  # the unit's own sandbox
        (errno.EACCES, False, False, False),
    ],
)
def test_in_a_container_nobody_is_sent_to_a_drop_in(
    number: int, booted: bool, inside: bool, container: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rehearsal_answers, "is_booted", lambda: booted)
    monkeypatch.setattr(rehearsal_answers, "IN_CONTAINER", str(tmp_path / "container"))
    if inside:
        (tmp_path / "container").write_text("lxc")
    cure = cure_of_sandbox(OSError(number, "no"), "ProtectKernelTunables=no")
    assert ("ProtectKernelTunables" in cure, "run moetuned on the machine itself" in cure) == (not container, container)


def test_opening_for_writing_neither_makes_nor_cuts(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        open_for_writing(str(file))
    assert not file.exists()
    file.write_text("as it was")
    open_for_writing(str(file))
    assert file.read_text() == "as it was"
