"""`python -m moetuned.demo`: makes a model, runs the daemon on it, squeezes it, and says what was seen."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.api.socket_path import DEFAULT_SOCKET
from moetuned.demo import leftovers, plan
from moetuned.demo.backend_choice import KINDS, Choice, ChoiceError, choose
from moetuned.demo.box import Box, BoxError, box, hierarchy
from moetuned.demo.daemon_process import DaemonProcess
from moetuned.demo.ending import deaf, ending_signals
from moetuned.demo.leftovers import Busy
from moetuned.demo.screen import Screen
from moetuned.demo.show import NotSeen, Show, settings_now
from moetuned.demo.tied import tied
from moetuned.demo.visitor import Visitor
from moetuned.host.block_devices import under_file
from moetuned.host.cgroup import Hierarchy, joining
from moetuned.host.model_files import ModelFileError, read_model
from moetuned.schema.event import EventName
from moetuned.schema.units import format_bytes, parse_bytes
from moetuned.schema.verdict import Paging, Phase
from moetuned.state.undo_journal import DEFAULT_DIRECTORY

NAME = "demo"
CALM_SECONDS = 300.0
"""On a machine whose processors are taken by others, two answers of a real llama.cpp can take minutes."""
_ENDING_SECONDS = 20.0
READ_AHEAD_KIB = 128
COLD = frozenset({Paging.COLD, Paging.WARMING})
SETTINGS = (
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/dirty_background_bytes",
    "/proc/sys/vm/vfs_cache_pressure",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)


def make_parser() -> argparse.ArgumentParser:
    """The demo's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m moetuned.demo",
        description=__doc__,
        epilog="Examples: sudo make demo; sudo .venv/bin/python -m moetuned.demo --backend stand-in --plain",
    )
    parser.add_argument(
        "--backend", choices=("auto", *KINDS), default="auto", help="what to run (default: the first there is)"
    )
    parser.add_argument("--size", default="1.5G", help="size of the model to make (default %(default)s)")
    parser.add_argument(
        "--directory", default="/var/tmp", help="a directory on a disk, not in memory (default %(default)s)"
    )
    parser.add_argument("--plain", action="store_true", help="lines instead of a live picture")
    return parser


def main(argv: list[str]) -> int:
    """0: everything was seen; 1: something was not; 2: usage or it cannot run here."""
    arguments = make_parser().parse_args(argv)
    try:
        with ending_signals():
            return _run(arguments)
    except KeyboardInterrupt:
        print("\nmoetuned demo: ended early; everything was taken back", file=sys.stderr)
        return 130
    except (Busy, ChoiceError, BoxError, ModelFileError, OSError, ValueError) as error:
        print(f"moetuned demo: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        return _run_alone(arguments, None)
    with leftovers.alone():
        return _run_alone(arguments, hierarchy())  # before the model is made: say at once when it cannot work


def _run_alone(arguments: argparse.Namespace, cgroups: Hierarchy | None) -> int:
    root = cgroups is not None
    _refuse_beside_a_daemon(arguments.directory)
    choice = choose(arguments.backend, _free_port(), max(1, min(4, os.cpu_count() or 1)))
    removed = leftovers.take_back(arguments.directory, cgroups)
    for path in removed:
        print(f"moetuned demo: a demo that was killed had left {path}; removed", flush=True)
    if root and os.path.exists(os.path.join(DEFAULT_DIRECTORY, "undo.jsonl")):
        leftovers.give_settings_back()
    before = settings_now(SETTINGS)
    with contextlib.ExitStack() as stack, _then_deaf():
        directory = stack.enter_context(_directory(arguments.directory))
        model = _make_model(directory, parse_bytes(arguments.size))
        ahead = under_file(model).read_ahead_path
        before |= settings_now((ahead,) if ahead is not None else ())
        found = read_model(model).identity
        sizes = plan.Sizes(found.size_bytes, found.kv_bytes_per_token or 0)
        made = stack.enter_context(box(sizes.limit_bytes)) if root else None
        state, runtime = (DEFAULT_DIRECTORY, os.path.dirname(DEFAULT_SOCKET)) if root else (directory, directory)
        for kept in (state, runtime):
            if removed or not os.path.exists(kept):
                stack.callback(_remove_if_empty, kept)
        hooks, hook_log = _hooks(directory)
        config = _config(directory, model, choice, made, hooks)
        screen = Screen(plain=arguments.plain)
        daemon = DaemonProcess(config, state, runtime, os.path.join(directory, "daemon.log"))
        show = Show(daemon, screen, NAME, hook_log)
        stack.callback(_end_backend, runtime)
        stack.callback(daemon.stop)
        show.observed.fact("backend", choice.name)
        problem = None
        try:
            daemon.start()
            _scenes(show, screen, daemon, made, sizes, stack, choice)
        except (NotSeen, ChildProcessError) as error:
            problem = str(error)
            problem += f"\nThe daemon's log ends:\n{daemon.log_end()}"
            problem += f"\nThe backend's log ends:\n{_end_of(os.path.join(directory, 'backend.log'))}"
        code = daemon.stop()
    left = {path: value for path, value in settings_now(tuple(before)).items() if value != before[path]}
    show.observed.fact("settings", "as they were" if not left else f"NOT as they were: {', '.join(left)}")
    if code != 0:
        show.observed.fact("the daemon's end", f"NOT clean: {'killed' if code is None else f'code {code}'}")
    _summary(show, made is not None, problem)
    return 0 if problem is None and not left and code == 0 else 1


@contextlib.contextmanager
def _then_deaf() -> Iterator[None]:
    """From its end on nothing interrupts what an ExitStack around it takes back."""
    try:
        yield
    finally:
        deaf()


def _scenes(
    show: Show,
    screen: Screen,
    daemon: DaemonProcess,
    made: Box | None,
    sizes: plan.Sizes,
    stack: contextlib.ExitStack,
    choice: Choice,
) -> None:
    port = int(choice.command[choice.command.index("--port") + 1])
    screen.scene(f"1/5  cold start of {choice.name}, a model of {format_bytes(sizes.model_bytes)}")
    # A small model on a fast disk has loaded before the daemon looks twice: all that is left to see is that it warms.
    show.wait("cold: it loads", 120, lambda: Phase.LOADING in show.phases or bool(COLD & show.pagings))
    show.wait("warm: loaded and warmed", 180, lambda: show.view is not None and show.view.warm.state == "done")
    screen.scene("2/5  somebody asks about one topic")
    visitor = show.visitor = Visitor(port)
    stack.callback(visitor.stop)
    visitor.start()
    show.wait_calm("steady: what it uses is in memory", CALM_SECONDS)
    show.hold(5)
    if made is None:
        return
    _squeeze(show, screen, made, sizes)
    _hog(show, screen, made, sizes, stack)
    show.hold(3)
    daemon.stop()


def _squeeze(show: Show, screen: Screen, made: Box, sizes: plan.Sizes) -> None:
    screen.scene(
        f"3/5  the cgroup is squeezed from {format_bytes(sizes.limit_bytes)} to {format_bytes(sizes.squeezed_bytes)}"
    )
    read_before = show.observed.total_read_bytes
    squeezed = time.time()
    made.limit(sizes.squeezed_bytes)
    show.wait("thrashing is named", 60, lambda: show.event(EventName.THRASH_BEGIN, squeezed) is not None)
    begun = show.event(EventName.THRASH_BEGIN, squeezed)
    assert begun is not None
    show.observed.fact("squeeze to thrash_begin", f"{begun.wall_seconds - squeezed:.1f} s")
    show.wait("its hook ran", 15, lambda: show.hook_ran(EventName.THRASH_BEGIN))
    show.hold(12)
    screen.scene("4/5  the cgroup grows back")
    show.observed.fact("read while squeezed", format_bytes(show.observed.total_read_bytes - read_before))
    made.limit(sizes.limit_bytes)
    # Counted from its begin: what is used may have come to fit into the squeezed cgroup by itself.
    show.wait("the thrash ends", 90, lambda: show.thrash_is_over(begun.wall_seconds))
    show.wait_calm("steady again", CALM_SECONDS)
    show.hold(3)


def _hog(show: Show, screen: Screen, made: Box, sizes: plan.Sizes, stack: contextlib.ExitStack) -> None:
    view = show.view
    assert view is not None
    context_before = view.context.now
    taken = sizes.hog_bytes(view.memory.headroom_bytes or 0)
    screen.scene(f"5/5  a program in the same cgroup takes {format_bytes(taken)}")
    kills, hogged = made.oom_kills(), time.time()
    _start_hog(made, taken, stack)
    show.wait("memory is near its limit", 90, lambda: show.event(EventName.MEMORY_NEAR_LIMIT, hogged) is not None)
    show.wait("its hook ran", 15, lambda: show.hook_ran(EventName.MEMORY_NEAR_LIMIT))
    show.wait(
        "the backend is restarted with a shorter context", 120,
        lambda: show.is_restarted(hogged, context_before),
    )  # fmt: skip
    near, restarted = show.event(EventName.MEMORY_NEAR_LIMIT, hogged), show.event(EventName.BACKEND_RESTARTED, hogged)
    assert near is not None
    took = "unknown" if restarted is None else f"{restarted.wall_seconds - near.wall_seconds:.1f} s"
    show.observed.fact("near limit to healthy again", took)
    show.hold(max(0.0, hogged + taken / plan.HOG_BYTES_PER_SECOND + 2 - time.time()))
    show.wait_calm("steady again, beside the hog", CALM_SECONDS)
    view = show.view
    assert view is not None
    if made.oom_kills() != kills:
        raise NotSeen("the kernel's OOM killer acted before moetuned did")
    if context_before is None or view.context.now is None or view.context.now >= context_before:
        raise NotSeen(f"the context is {view.context.now}, not shorter than {context_before}")
    show.observed.fact("context", f"{context_before} -> {view.context.now} tokens; no OOM kill")


def _start_hog(made: Box, size_bytes: int, stack: contextlib.ExitStack) -> None:
    command = [sys.executable, "-m", "moetuned.demo.hog", str(size_bytes), str(plan.HOG_BYTES_PER_SECOND)]
    command = tied(command, signal.SIGKILL)
    hog = subprocess.Popen(joining(made.directory, command), stdin=subprocess.DEVNULL, start_new_session=True)
    stack.callback(hog.wait)
    stack.callback(hog.kill)


def _refuse_beside_a_daemon(parent: str) -> None:
    """The daemon of a demo that was killed ends by itself; it is waited for."""
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            Client(DEFAULT_SOCKET, timeout_seconds=2.0).status()
        except DaemonError:
            return
        if not (os.path.isdir(parent) and leftovers.directories(parent)) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    raise ValueError(
        "a moetuned runs on this machine and would fight with the demo; stop it first: systemctl stop moetuned"
    )


@contextlib.contextmanager
def _directory(parent: str) -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix=f"{leftovers.PREFIX}{os.getpid()}-", dir=parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _make_model(directory: str, size_bytes: int) -> str:
    path = os.path.join(directory, "model.gguf")
    print(f"moetuned demo: making a model of {format_bytes(size_bytes)} in {directory} ...", flush=True)
    command = [sys.executable, "-m", "moetuned.simulator", "make-model", path, "--size", str(size_bytes)]
    command += ["--heads-kv", str(plan.HEADS_KV)]
    # A session of its own: Ctrl-C is for the demo, which ends it without a traceback of its own.
    done = subprocess.run(tied(command, signal.SIGKILL), stdin=subprocess.DEVNULL, check=False, start_new_session=True)
    if done.returncode != 0:
        raise ValueError(f"the model could not be made (code {done.returncode})")
    return path


def _hooks(directory: str) -> tuple[str, str]:
    hooks, log = os.path.join(directory, "hooks.d"), os.path.join(directory, "hooks.log")
    os.mkdir(hooks, 0o755)
    hook = os.path.join(hooks, "write-line")
    with open(hook, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nprintf '%s %s\\n' \"$MOETUNED_EVENT\" \"$MOETUNED_MESSAGE\" >> '{log}'\n")
    os.chmod(hook, 0o755)
    return hooks, log


def _config(directory: str, model: str, choice: Choice, made: Box | None, hooks: str) -> str:
    port = choice.command[choice.command.index("--port") + 1]
    supervise = {"by": "process", "command": list(choice.command), "log": os.path.join(directory, "backend.log")}
    if made is not None:
        supervise["cgroup"] = made.directory
    tree = {
        "tuning": {"profile": "moe-offload", "read_ahead": READ_AHEAD_KIB}
        if made is not None
        else {"profile": "observe"},
        "backends": [
            {
                "name": NAME,
                "kind": choice.kind,
                "model": model,
                "supervise": supervise,
                "url": f"http://127.0.0.1:{port}",
                "context": {"preferred": plan.PREFERRED_CONTEXT, "minimum": plan.MINIMUM_CONTEXT},
                "prompt_cache_mib": plan.PROMPT_CACHE_MIB,
            }
        ],
        "watch": {"residency_every": "2s", "discover": False},
        "relief": {"mode": "act" if made is not None else "observe"},
        "alerts": [{"kind": "exec", "directory": hooks, "on": ["thrash_begin", "memory_near_limit"]}],
        "api": {"listen": False},
    }
    path = os.path.join(directory, "moetuned.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tree, file, indent=1)  # JSON is YAML
    return path


def _end_backend(runtime: str) -> None:
    """End a backend that a killed daemon left behind."""
    from moetuned.host.spawn import adopt
    from moetuned.state import backend_record

    records = os.path.join(runtime, "backends")
    record = backend_record.read(NAME, records)
    if record is not None:
        identity = backend_record.process_of(record)
        left = None if identity is None else adopt(identity)
        if left is not None:
            left.kill()
        backend_record.remove(NAME, records)
    _remove_if_empty(records)


def _remove_if_empty(directory: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_of(path: str, lines: int = 8) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])
    except OSError as error:
        return str(error)


def _summary(show: Show, boxed: bool, problem: str | None) -> None:
    visitor = show.visitor
    if visitor is not None:
        show.observed.fact("requests", f"{visitor.answered} answered, {visitor.refused} refused while it restarted")
    show.observed.fact("the backend read", format_bytes(show.observed.total_read_bytes))
    print("\nWhat happened")
    width = max(len(name) for name, _ in show.observed.facts)
    for name, value in show.observed.facts:
        print(f"  {name:<{width}}  {value}")
    if not boxed:
        print("  Not shown: squeeze, thrashing, near limit and restart need a memory cgroup; run: sudo make demo")
    if problem is not None:
        print(f"NOT seen: {problem}")
    else:
        print("Everything was seen." if boxed else "All of the rest was seen.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
