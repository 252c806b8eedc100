"""What the settings of a device or a cgroup are found by: the models that a configuration names, and its backends' cgroups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from moetuned.decide.read_ahead import typical_slice_bytes
from moetuned.host.model_files import ModelFileError
from moetuned.host.model_outline import read_outline
from moetuned.parse.config_backend_check import CGROUP_KEYS
from moetuned.schema.config import Backend, Config
from moetuned.schema.supervise import SuperviseProcess
from moetuned.schema.tunable import CgroupTarget, ModelTarget, Targets
from moetuned.schema.units import parse_bytes

_WITH_DAEMON = (
    "{0} is in moetuned's own cgroup, and what is set there would be set for moetuned; it is set once {0} is in one of its own "
    "(supervise.scope where systemd runs, else supervise.cgroup)"
)


def find_targets(
    config: Config,
    cgroups: Mapping[str, str] | None = None,
    slice_of: Callable[[str], ModelTarget] | None = None,
    with_daemon: Collection[str] = (),
) -> Targets:
    """Each model file of the configuration once, and each cgroup that something is asked for.

    `cgroups` maps backends that run to their cgroup's directory; one that moetuned starts has it in the configuration. `with_daemon`:
    backends that run where the daemon does, which is not set for them. Reads the headers of the models; what cannot be read is a target
    that says why.
    """
    look = slice_of or model_target
    paths = dict.fromkeys(backend.model for backend in config.backends if backend.model is not None)
    models = tuple(look(path) for path in paths)
    found = (_cgroup(backend, cgroups or {}, with_daemon) for backend in config.backends)
    return Targets(models, tuple(target for target in found if target is not None), limits=config.limits)


def model_target(path: str) -> ModelTarget:
    """The slice of an expert in the model at `path`, from its headers. Never raises."""
    try:
        experts = read_outline(path).experts
    except ModelFileError as error:
        return ModelTarget(path, unknown=str(error))
    except OSError as error:
        return ModelTarget(path, unknown=f"{path}: {error.strerror or error}")
    found = typical_slice_bytes(experts)
    return ModelTarget(path, found, None if found is not None else f"{path} has no experts")


def asks_of_cgroup(backend: Backend) -> bool:
    """Whether something of its cgroup is to be set."""
    return any(getattr(backend, key) is not None for key in CGROUP_KEYS)


def _cgroup(backend: Backend, running: Mapping[str, str], with_daemon: Collection[str]) -> CgroupTarget | None:
    if not asks_of_cgroup(backend):
        return None
    own = backend.supervise.cgroup if isinstance(backend.supervise, SuperviseProcess) else None
    directory = own or running.get(backend.name)
    unknown = _WITH_DAEMON.format(backend.name) if directory is None and backend.name in with_daemon else None
    return CgroupTarget(
        backend.name, directory, _bytes(backend.memory_low), backend.io_weight, unknown, _bytes(backend.memory_min)
    )


def _bytes(size: str | int | None) -> int | None:
    return None if size is None else parse_bytes(size)
