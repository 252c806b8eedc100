"""What a cgroup is to people, from its path: a container, a systemd unit or slice.

Formats: runc and crun with systemd (`docker-<id>.scope`, `libpod-<id>.scope`, `cri-containerd-<id>.scope`, `crio-<id>.scope`)
and without (`/docker/<id>`, `/libpod_parent/libpod-<id>`, `/kubepods/burstable/pod<uid>/<id>`), LXC (`lxc.payload.<name>`,
`/lxc/<name>`), systemd-nspawn (`machine.slice/systemd-nspawn@<name>.service`, `machine-<name>.scope`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_SHORT_ID = 12
_ID = r"(?P<id>[0-9a-f]{32,64})"
_ENGINES = (
    ("docker", re.compile(rf"docker-{_ID}\.scope")),
    ("podman", re.compile(rf"libpod-(?:payload-)?{_ID}(?:\.scope)?")),
    ("containerd", re.compile(rf"(?:cri-containerd|nerdctl)[-:]{_ID}(?:\.scope)?")),
    ("CRI-O", re.compile(rf"crio-{_ID}(?:\.scope)?")),
)
_BARE_ID = re.compile(_ID)
_POD = re.compile(r"(?:kubepods.*-)?pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f_-]{20,30}|[0-9a-f]{32})(?:\.slice)?")
_LXC = re.compile(r"lxc\.payload\.(?P<name>.+)")
_NSPAWN = re.compile(r"systemd-nspawn@(?P<name>.+)\.service")
_MACHINE = re.compile(r"machine-(?P<name>.+)\.scope")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_UNIT_ENDINGS = (".service", ".scope", ".slice")


@lru_cache(maxsize=64)
def container_of(path: str) -> str | None:
    """The innermost container that a cgroup is or is in: "docker container 0123456789ab"; None when it is in none."""
    parts = [part for part in path.split("/") if part]
    for position in range(len(parts) - 1, -1, -1):
        name = _container(parts, position)
        if name is not None:
            return name
    return None


@lru_cache(maxsize=64)
def cgroup_name(path: str) -> str:
    """The cgroup at `path` (any directory of it): the container it is the top of, its unit or slice, else the path."""
    parts = [part for part in path.removeprefix("/sys/fs/cgroup").split("/") if part]
    if not parts or parts == ["memory"]:
        return "this container" if path.strip("/") else "the root cgroup"
    name = _container(parts, len(parts) - 1)
    if name is not None:
        return name
    return parts[-1] if parts[-1].endswith(_UNIT_ENDINGS) else path


def _container(parts: Sequence[str], position: int) -> str | None:
    part, above = parts[position], parts[position - 1] if position else ""
    for engine, pattern in _ENGINES:
        found = pattern.fullmatch(part)
        if found is not None:
            return f"{engine} container {found['id'][:_SHORT_ID]}"
    if _BARE_ID.fullmatch(part):
        if above == "docker":
            return f"docker container {part[:_SHORT_ID]}"
        if _POD.fullmatch(above) or above.startswith("ecs"):
            return f"container {part[:_SHORT_ID]}"
    pod = _POD.fullmatch(part)
    if pod is not None:
        return f"Kubernetes pod {pod['uid'].replace('_', '-')}"
    for kind, pattern in (("LXC container", _LXC), ("nspawn container", _NSPAWN), ("machine", _MACHINE)):
        found = pattern.fullmatch(part)
        if found is not None:
            return f"{kind} {_unescaped(found['name'])}"
    if above == "lxc":
        return f"LXC container {part}"
    return None


def _unescaped(name: str) -> str:
    r"""What may not be in a unit's name systemd writes as \x2d; anything that is not printable stays as it is."""
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)
    return text if text.isprintable() else name
