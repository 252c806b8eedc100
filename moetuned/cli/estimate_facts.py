"""Gathers what an estimate needs: headers, this machine or the one described, the disk, the backend's flags, the daemon."""

from __future__ import annotations

import os

import msgspec

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.api.socket_path import find_socket
from moetuned.decide.estimate import PREFERRED_CONTEXT_TOKENS, ModelFacts, Program, estimate, trained_context
from moetuned.decide.launch_flags import Wishes
from moetuned.gguf.kv_cache import KV_TYPES
from moetuned.host import machine as host_machine
from moetuned.host.backend_flags import ask_flags, find_program
from moetuned.host.block_devices import FileDevices, under_file
from moetuned.host.disk_measure import MeasureError, measure_slices
from moetuned.host.fit_params import PROGRAM as FIT_PARAMS
from moetuned.host.fit_params import ask_exact
from moetuned.host.model_outline import ModelOutline, read_outline
from moetuned.schema.estimate import UNKNOWN_SWAP, Amount, DiskFacts, Estimate, MachineFacts, Measured
from moetuned.schema.model import ByteRange
from moetuned.schema.snapshot import BackendView
from moetuned.schema.units import format_bytes
from moetuned.schema.verdict import Paging

_KERNEL_READ_AHEAD_KB = 128
_DAEMON_SECONDS = 0.5
_SYSTEM_BYTES = (1 << 30, 3 << 30)
_SYSTEM_SHARE = (16, 4)
_MEASURED_LAYERS = 64
_SETTLED = (Paging.STEADY, Paging.STREAMING)


class Question(msgspec.Struct, frozen=True):
    """What the user asked; sizes in bytes, None where nothing was said."""

    model: str
    ram: int | None = None
    vram: int | None = None
    disk_read: int | None = None
    context: int | None = None
    slots: int = 1
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    cache_ram: int | None = None
    backend: str | None = None
    measure: bool = False
    exact: bool = False
    socket_path: str | None = None


def answer(question: Question) -> Estimate:
    """The estimate. Raises ModelFileError, GgufError, MachineError, MeasureError, and ValueError for impossible wishes."""
    for kind in (question.cache_type_k, question.cache_type_v):
        if kind not in KV_TYPES:
            raise ValueError(f"{kind!r} is no cache type; llama.cpp knows {', '.join(sorted(KV_TYPES))}")
    outline = read_outline(question.model)
    machine, notes = _machine(question)
    disk = _disk(question, outline, machine)
    program, problem = _program(question.backend)
    if problem is not None:
        notes.append(problem)
    if not outline.whole:
        notes.append(
            f"{format_bytes(outline.present_bytes)} of {format_bytes(outline.size_bytes)} are on this disk so far"
        )
    trained = trained_context(outline.headers[0])
    wishes = Wishes(
        context_length=question.context or min(PREFERRED_CONTEXT_TOKENS, trained or PREFERRED_CONTEXT_TOKENS),
        slots=question.slots,
        cache_type_k=question.cache_type_k,
        cache_type_v=question.cache_type_v,
        prompt_cache_bytes=question.cache_ram,
    )
    model = ModelFacts(
        question.model, outline.paths, outline.headers, outline.part_bytes, outline.present_bytes, outline.experts
    )
    measured = None if question.ram is not None or question.vram is not None else _seen_by_daemon(question, outline)
    found = estimate(model, machine, disk, wishes, program, measured, notes)
    if not question.exact:
        return found
    fit_params = find_program(FIT_PARAMS, program.path)
    return msgspec.structs.replace(found, exact=ask_exact(fit_params, outline, found.plan))


def _machine(question: Question) -> tuple[MachineFacts, list[str]]:
    vram = None if question.vram is None else Amount(question.vram, question.vram, "--vram")
    if question.ram is None:
        here = host_machine.read_machine(os.getpid(), host_machine.own_cpus())
        return msgspec.structs.replace(here, vram=vram), []
    try:
        here = host_machine.read_machine(os.getpid(), host_machine.own_cpus())
    except host_machine.MachineError:
        here = MachineFacts(Amount(0, 0, ""), Amount(0, 0, ""), Amount(0, 0, ""))
    least, most = (min(size, question.ram // share) for size, share in zip(_SYSTEM_BYTES, _SYSTEM_SHARE, strict=True))
    facts = msgspec.structs.replace(
        here,
        limit=Amount(question.ram, question.ram, "--ram"),
        system=Amount(least, most, "assumed: without a desktop, with one"),
        swap=Amount(0, 0, UNKNOWN_SWAP),
        load=None,
        vram=vram,
    )
    disk = "" if question.disk_read is not None else " and the kind of disk (say yours with --disk-read)"
    return facts, [f"the number and kind of CPU cores{disk} are this machine's"]


def _disk(question: Question, outline: ModelOutline, machine: MachineFacts) -> DiskFacts:
    under = under_file(outline.paths[0])
    kind, source = _kind(under)
    if question.disk_read is not None:
        # What is sold with more than SATA can carry is an NVMe disk, with less than any SSD a hard disk.
        kind = (
            "nvme" if question.disk_read > 600_000_000 else "ssd" if question.disk_read > 250_000_000 else "hard disk"
        )
        source = "--disk-read"
    ahead, ahead_source = under.read_ahead_kb, under.read_ahead_path
    if ahead is None or question.ram is not None:
        ahead, ahead_source = _KERNEL_READ_AHEAD_KB, "the kernel's default read-ahead"
    window = max(4, 2 * ahead) << 10  # llama.cpp opens with POSIX_FADV_SEQUENTIAL, which doubles it
    rate = None
    if question.measure:
        if not outline.whole:
            raise MeasureError(f"{question.model} is not wholly on this disk yet, so it cannot be measured")
        rate = measure_slices(
            outline.paths,
            _some_slices(outline),
            window_bytes=window,
            threads=machine.physical_cores or 1,
            filesystem=under.filesystem,
        )
    return DiskFacts(kind, source, window, f"{ahead_source}, doubled by llama.cpp", rate, question.disk_read)


def _kind(under: FileDevices) -> tuple[str, str]:
    if under.unknown is not None or not under.names:
        return "unknown", under.unknown or "no disk was found under the file"
    names = ", ".join(under.names)
    if under.nvme:
        return "nvme", names
    if any(name.startswith(("vd", "xvd", "loop")) for name in under.names):
        return "unknown", f"{names} is a virtual disk"
    if under.rotational is None:
        return "unknown", names
    return ("hard disk" if under.rotational else "ssd"), names


def _some_slices(outline: ModelOutline) -> tuple[ByteRange, ...]:
    """Slices of the largest tensors' experts, spread over at most 64 tensors."""
    largest = max((tensor.slice_bytes for tensor in outline.experts.tensors), default=0)
    tensors = [tensor for tensor in outline.experts.tensors if tensor.slice_bytes == largest]
    step = -(-len(tensors) // _MEASURED_LAYERS) or 1
    return tuple(
        ByteRange(tensor.part, tensor.offset + index * tensor.slice_bytes, tensor.slice_bytes)
        for tensor in tensors[::step]
        for index in range(tensor.count)
    )


def _program(named: str | None) -> tuple[Program, str | None]:
    """The backend's program and, when its flags are not known, why."""
    if named is None:
        path = find_program("llama-server")
        if path is None:
            return Program(), None
    else:
        path = named if "/" in named else find_program(named)
        if path is None:
            raise ValueError(f"--backend {named}: there is no such program on PATH; give its path")
        if not os.path.exists(path):
            raise ValueError(f"--backend {named}: there is no such file")
        if not os.path.isfile(path):
            raise ValueError(f"--backend {named} is no file; name the llama-server in it")
        if not os.access(path, os.X_OK):
            raise ValueError(f"--backend {named} is not executable; name the llama-server itself, or chmod +x it")
    flags = ask_flags(path)
    if named is not None and flags.unknown is not None:
        raise ValueError(f"--backend: {flags.unknown}")
    return Program(path, flags.known), flags.unknown


def _seen_by_daemon(question: Question, outline: ModelOutline) -> Measured | None:
    """What the daemon measured of this very model, when it runs and has seen enough; None otherwise."""
    try:
        snapshot = Client(question.socket_path or find_socket(os.environ), _DAEMON_SECONDS).status()
    except DaemonError:
        return None
    ours = {os.path.realpath(path) for path in outline.paths}
    for backend in snapshot.backends:
        if backend.model_path is not None and os.path.realpath(backend.model_path) in ours:
            return measured_of(backend)
    return None


def measured_of(backend: BackendView) -> Measured | None:
    """Bytes a token of a backend that is past its warm-up; the tokens it has made since then are its rate times the time."""
    read, rate = backend.signals.get("bytes_per_token"), backend.signals.get("tokens_per_second")
    since = backend.verdict.paging_since
    if read is None or not rate or since is None or backend.verdict.paging not in _SETTLED:
        return None
    return Measured(read, int(rate * max(0.0, backend.verdict.at_seconds - since)), rate)
