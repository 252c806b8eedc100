"""A container engine of our own with the command line of docker: what it is told, what becomes of it, and faults at any call.

In a test it is called (`FakeEngine.ask`); as a program (`write_program`) it keeps its state in a file between calls. It starts nothing: a
container that "runs" has a pid that is only a number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

FAIL, HANG, HANG_DONE, DIE_BEFORE, DIE_AFTER = "fail", "hang", "hang-done", "die-before", "die-after"
FAULTS = (FAIL, HANG, HANG_DONE, DIE_BEFORE, DIE_AFTER)
"""It refuses; it never answers, without or after doing it; whoever asks is killed, before or after it is done."""


class KilledError(BaseException):
    """SIGKILL for whoever asked: nothing may catch it."""


class RefusedError(Exception):
    """What the engine says no with."""


class FakeEngine:
    """Containers in a list; `history` has what was done, `two_ran` whether two ever ran at once."""

    def __init__(self) -> None:
        self.containers: list[dict[str, object]] = []
        self.history: list[str] = []
        self.faults: dict[int, str] = {}
        self.calls = 0
        self.made = 0
        self.two_ran = False
        self.start_fails: Callable[[dict[str, object]], bool] = lambda _one: False
        self.knows_update = True
        self.images = {"image"}

    def add(
        self, name: str, words: Sequence[str] = ("image",), labels: Sequence[str] = (), **more: object
    ) -> dict[str, object]:
        self.made += 1
        one: dict[str, object] = {
            "id": f"{self.made:064x}", "name": name, "status": "created", "pid": 0, "code": 0, "policy": "no", "rm": False,
            "labels": dict(label.split("=", 1) for label in labels), "words": list(words), "oom": False, **more,
        }  # fmt: skip
        self.containers.append(one)
        return one

    def named(self, key: object) -> dict[str, object] | None:
        return next((one for one in self.containers if key in (one["name"], one["id"])), None)

    def running(self) -> list[dict[str, object]]:
        return [one for one in self.containers if one["status"] == "running"]

    def run(self, one: dict[str, object]) -> None:
        one.update(status="running", pid=1000 + int(str(one["id"]), 16), code=0)
        self.two_ran |= len(self.running()) > 1

    def end(self, one: dict[str, object], code: int = 0) -> None:
        one.update(status="exited", pid=0, code=code)
        if one["rm"]:
            self.containers.remove(one)

    def boot(self) -> None:
        """The machine is started anew."""
        for one in list(self.containers):
            if one["status"] == "running":
                self.end(one, 137)
                again = one["policy"] in ("always", "unless-stopped")
            else:
                again = one["policy"] == "always" and one["status"] == "exited"
            if again:
                self.run(one)

    def fault(self) -> str | None:
        """The fault of this call; also for calls that are none of the engine's, such as writing a record."""
        self.calls += 1
        fault = self.faults.pop(self.calls, None)
        if fault == DIE_BEFORE:
            raise KilledError
        return fault

    def ask(self, arguments: Sequence[str], seconds: float):
        from moetuned.host.engine_cli import Said
        from moetuned.host.service import ServiceError

        fault = self.fault()
        if fault == FAIL:
            return Said(1, b"", b"Error response from daemon: no\n")
        if fault == HANG:
            raise ServiceError(f"docker {arguments[0]} did not end within {seconds:.0f} s")
        code, output, errors = self.answer(arguments)
        if fault == HANG_DONE:
            raise ServiceError(f"docker {arguments[0]} did not end within {seconds:.0f} s")
        if fault == DIE_AFTER:
            raise KilledError
        return Said(code, output.encode(), errors.encode())

    def answer(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        try:
            return 0, getattr(self, f"_{arguments[0]}")(list(arguments[1:])), ""
        except RefusedError as error:
            return 1, "[]\n" if arguments[0] == "inspect" else "", f"Error response from daemon: {error}\n"

    def _found(self, key: str) -> dict[str, object]:
        one = self.named(key)
        if one is None:
            raise RefusedError(f"No such container: {key}")
        return one

    def _inspect(self, words: list[str]) -> str:
        assert words[:2] == ["--type", "container"]
        return json.dumps([_shown(self._found(key)) for key in words[2:]])

    def _ps(self, words: list[str]) -> str:
        assert words[:2] == ["--all", "--no-trunc"]
        part = words[3].removeprefix("name=")
        return "".join(f"{one['id']} {one['name']}\n" for one in self.containers if part in str(one["name"]))

    def _create(self, words: list[str]) -> str:
        assert words[:3] == ["--pull", "never", "--name"]
        name, rest, labels, policy = words[3], words[4:], [], "no"
        if self.named(name):
            raise RefusedError(f"Conflict. The container name {name} is already in use")
        while rest[0] in ("--label", "--restart"):
            if rest[0] == "--label":
                labels.append(rest[1])
            else:
                policy = rest[1]
            rest = rest[2:]
        if rest[0] not in self.images:
            raise RefusedError(f"No such image: {rest[0]}")
        self.history.append(f"create {name}")
        return f"{self.add(name, rest, labels, policy=policy)['id']}\n"

    def _update(self, words: list[str]) -> str:
        if not self.knows_update:
            raise RefusedError("unknown flag: --restart")
        self._found(words[1])["policy"] = words[0].removeprefix("--restart=")
        self.history.append(f"update {self._found(words[1])['name']} {words[0]}")
        return ""

    def _stop(self, words: list[str]) -> str:
        assert words[:2] == ["-t", "10"]
        one = self._found(words[2])
        self.history.append(f"stop {one['name']}")
        if one["status"] == "running":
            self.end(one)
        return ""

    def _rename(self, words: list[str]) -> str:
        one = self._found(words[0])
        if self.named(words[1]):
            raise RefusedError(f"Conflict. The container name {words[1]} is already in use")
        self.history.append(f"rename {one['name']} {words[1]}")
        one["name"] = words[1]
        return ""

    def _start(self, words: list[str]) -> str:
        one = self._found(words[0])
        if self.start_fails(one):
            raise RefusedError("driver failed programming external connectivity: port is already allocated")
        self.history.append(f"start {one['name']}")
        self.run(one)
        return ""

    def _rm(self, words: list[str]) -> str:
        one = self._found(words[0])
        if one["status"] == "running":
            raise RefusedError("You cannot remove a running container")
        self.history.append(f"rm {one['name']}")
        self.containers.remove(one)
        return ""

    def _kill(self, words: list[str]) -> str:
        one = self._found(words[0])
        if one["status"] != "running":
            raise RefusedError(f"container {words[0]} is not running")
        self.history.append(f"kill {one['name']}")
        self.end(one, 137)
        return ""


def _shown(one: dict[str, object]) -> dict[str, object]:
    runs = one["status"] == "running"
    return {
        "Id": one["id"],
        "Name": f"/{one['name']}",
        "State": {
            "Status": one["status"],
            "Running": runs,
            "Pid": one["pid"],
            "ExitCode": one["code"],
            "OOMKilled": one["oom"],
        },
        "HostConfig": {"RestartPolicy": {"Name": one["policy"], "MaximumRetryCount": 0}, "AutoRemove": one["rm"]},
        "Config": {"Labels": one["labels"]},
    }


def write_program(path: Path, state: Path) -> None:
    """Make an executable at `path` that behaves as the engine, with its containers in the file `state`."""
    path.write_text(
        f"#!{sys.executable}\nimport runpy, sys\nsys.argv[1:1] = [{str(state)!r}]\nrunpy.run_path({__file__!r}, run_name='__main__')\n"
    )
    path.chmod(0o755)


def main(state: Path, arguments: Sequence[str]) -> int:
    engine = FakeEngine()
    if state.exists():
        engine.containers, engine.made = json.loads(state.read_text())
    code, output, errors = engine.answer(arguments)
    state.write_text(json.dumps([engine.containers, engine.made]))
    sys.stdout.write(output)
    sys.stderr.write(errors)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
