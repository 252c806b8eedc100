import os
import stat

import pytest

from moetuned.host import config_files
from moetuned.host.config_files import load_files, missing_places, unsafe
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.alert import ExecAlert
from moetuned.schema.config import Backend, Config, Profile
from moetuned.schema.supervise import SuperviseCommand, SuperviseProcess


@pytest.fixture
def default(tmp_path):
    """The path of a default config whose directory is there, with conf.d; as the installer leaves them."""
    before = os.umask(0o022)
    (tmp_path / "conf.d").mkdir()
    yield tmp_path / "moetuned.yaml"
    os.umask(before)


def problems(*arguments, **keys):
    with pytest.raises(ConfigError) as caught:
        load_files(*arguments, **keys)
    return [str(problem) for problem in caught.value.problems]


def test_without_a_default_file_nothing_is_changed(tmp_path):
    loaded = load_files(default_path=str(tmp_path / "none" / "moetuned.yaml"))
    assert (loaded.config, loaded.files, loaded.warnings) == (Config(), (), ())


def test_conf_d_overlays_the_default_file_in_the_order_of_names(default):
    default.write_text("watch: {interval: 1s, discover: false}\n")
    (default.parent / "conf.d" / "20-b.yaml").write_text("watch: {interval: 3s}\n")
    (default.parent / "conf.d" / "10-a.yaml").write_text("watch: {interval: 2s}\n")
    (default.parent / "conf.d" / ".hidden.yaml").write_text("nonsense")
    (default.parent / "conf.d" / "README").write_text("nonsense")
    loaded = load_files(default_path=str(default))
    assert [os.path.basename(name) for name in loaded.files] == ["moetuned.yaml", "10-a.yaml", "20-b.yaml"]
    assert (loaded.config.watch.interval, loaded.config.watch.discover) == ("3s", False)


def test_conf_d_is_read_without_the_default_file_too(default):
    (default.parent / "conf.d" / "a.yaml").write_text("tuning: {profile: moe-offload}\n")
    assert load_files(default_path=str(default)).config.tuning.profile is Profile.MOE_OFFLOAD


def test_a_name_that_surely_should_be_read_but_is_not_is_a_warning(default):
    (default.parent / "conf.d" / "a.yml").write_text("")
    (warning,) = load_files(default_path=str(default)).warnings
    assert "rename it" in str(warning)


def test_a_given_file_is_read_alone(default):
    (default.parent / "conf.d" / "a.yaml").write_text("nonsense")
    given = default.parent / "mine.yaml"
    given.write_text("watch: {interval: 3s}\n")
    loaded = load_files(str(given), default_path=str(default))
    assert loaded.files == (str(given),)
    assert loaded.config.watch.interval == "3s"


def test_a_given_file_that_is_missing_is_an_error(tmp_path):
    (problem,) = problems(str(tmp_path / "none.yaml"))
    assert "there is no such file" in problem


@pytest.mark.parametrize("kind", ["directory", "fifo", "dangling link"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(default, kind):
    if kind == "directory":
        default.mkdir()
    elif kind == "fifo":
        os.mkfifo(default)
    else:
        default.symlink_to(default.parent / "gone")
    (problem,) = problems(default_path=str(default))
    assert "is no regular file" in problem or "there is no such file" in problem


def test_bytes_that_are_no_text_and_files_without_end_are_refused(default):
    default.write_bytes(b"a: 1\nb: \xff\n")
    assert f"{default}:2: is not UTF-8 text" in problems(default_path=str(default))[0]
    default.write_bytes(b"#" * ((1 << 20) + 1))
    assert "larger than 1 MiB" in problems(default_path=str(default))[0]


def test_problems_of_all_files_come_together(default):
    default.write_text("watch: {interval: x}\n")
    (default.parent / "conf.d" / "a.yaml").write_bytes(b"\xff")
    (default.parent / "conf.d" / "b.yaml").write_text("bogus: 1\n")
    found = problems(default_path=str(default))
    assert len(found) == 3
    assert {os.path.basename(problem.split(":")[0]) for problem in found} == {"moetuned.yaml", "a.yaml", "b.yaml"}


def test_too_many_overlays_are_refused(default):
    for number in range(65):
        (default.parent / "conf.d" / f"{number}.yaml").write_text("")
    assert "at most 64" in problems(default_path=str(default))[0]


def _status(mode, uid=0, gid=0):
    return os.stat_result((mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("status", "cure"),
    [
        (_status(stat.S_IFREG | 0o644), None),
        (_status(stat.S_IFREG | 0o664), None),
        (_status(stat.S_IFREG | 0o664, gid=100), "chmod go-w"),
        (_status(stat.S_IFREG | 0o646), "chmod go-w"),
        (_status(stat.S_IFREG | 0o1646), "chmod go-w"),
        (_status(stat.S_IFREG | 0o600, uid=1000), "chown root"),
    ],
)
def test_root_trusts_only_what_nobody_else_may_write(monkeypatch, status, cure):
    directories = {"/": _status(stat.S_IFDIR | 0o755), "/tmp": _status(stat.S_IFDIR | 0o1777)}
    monkeypatch.setattr(config_files.os, "stat", lambda path: directories[path])
    found = [str(problem) for problem in unsafe("/tmp/m.yaml", status)]
    assert len(found) == (0 if cure is None else 1)
    assert cure is None or (cure in found[0] and "/tmp/m.yaml" in found[0])


@pytest.mark.parametrize("bad", [_status(stat.S_IFDIR | 0o777), _status(stat.S_IFDIR | 0o755, uid=7)])
def test_a_directory_on_the_way_that_others_may_write_is_refused(monkeypatch, bad):
    directories = {"/": _status(stat.S_IFDIR | 0o755), "/srv": bad, "/srv/m": _status(stat.S_IFDIR | 0o755)}
    monkeypatch.setattr(config_files.os, "stat", lambda path: directories[path])
    (problem,) = unsafe("/srv/m/m.yaml", _status(stat.S_IFREG | 0o644))
    assert problem.file == "/srv"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root refuses files of others")
def test_a_config_that_others_may_write_is_refused_for_real(default):
    default.write_text("")
    default.chmod(0o666)
    (problem,) = problems(default_path=str(default))
    assert f"chmod go-w {default}" in problem
    default.chmod(0o644)
    assert load_files(default_path=str(default)).files == (str(default),)


def _missing(tmp_path, *, model=None, alerts=(), **places):
    process = SuperviseProcess(command=["s"], **{key: str(tmp_path / name) for key, name in places.items()})
    backend = Backend(name="a", supervise=process, model=None if model is None else str(tmp_path / model))
    found = [*missing_places(Config(backends=[backend], alerts=list(alerts)))]
    assert all(problem.severity == "warning" for problem in found)
    return [f"{problem.path}: {problem.value}: {problem.hint}" for problem in found]


def test_places_that_are_there_are_not_mentioned(tmp_path):
    (tmp_path / "m.gguf").write_text("")
    alerts = [ExecAlert(directory=str(tmp_path))]
    assert _missing(tmp_path, model="m.gguf", alerts=alerts, directory="", log="new.log", cgroup="") == []
    assert list(missing_places(Config())) == []


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"directory": "x"}, "backends[0].supervise.directory: '{}/x': there is no such directory: the backend cannot"),
        ({"directory": "file"}, "backends[0].supervise.directory: '{}/file': this is no directory"),
        ({"directory": "file/x"}, "there is no such directory"),
        ({"log": "x/a.log"}, "backends[0].supervise.log: '{}/x/a.log': there is no directory {}/x: the log cannot"),
        ({"log": "file/a.log"}, "{}/file is no directory"),
        ({"cgroup": "x"}, "backends[0].supervise.cgroup: '{}/x': there is no such cgroup"),
        ({"model": "x.gguf"}, "backends[0].model: '{}/x.gguf': there is no such file"),
        ({"model": "directory"}, "this is a directory"),
    ],
)
def test_a_place_that_is_missing_is_a_warning(tmp_path, places, expected):
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    (found,) = _missing(tmp_path, **places)
    assert expected.replace("{}", str(tmp_path)) in found


def test_a_hook_directory_that_is_missing_is_a_warning(tmp_path):
    (found,) = _missing(tmp_path, alerts=[ExecAlert(directory=str(tmp_path)), ExecAlert(directory=f"{tmp_path}/none")])
    assert found.startswith(f"alerts[1].directory: '{tmp_path}/none': there is no such directory: no hook is run")


def test_what_may_not_be_looked_at_and_what_is_wrong_otherwise_is_not_said_to_be_missing(tmp_path, monkeypatch):
    assert list(missing_places(Config(alerts=[ExecAlert(directory="hooks")]))) == []

    def refused(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(config_files.os, "stat", refused)
    assert _missing(tmp_path, directory="x", model="y") == []


@pytest.mark.parametrize("make", [lambda path: SuperviseProcess([path]), lambda path: SuperviseCommand([path])])
def test_a_program_that_is_missing_is_a_warning(tmp_path, make):
    program = tmp_path / "restart-llama"
    config = Config(backends=[Backend("glm", supervise=make(str(program)))])
    (found,) = missing_places(config)
    assert "there is no such file: the backend cannot be" in found.hint
    program.write_text("")
    assert list(missing_places(config)) == []
    assert list(missing_places(Config(backends=[Backend("glm", supervise=make("llama-server"))]))) == []


def test_a_file_as_it_would_be(default):
    """What is to be written is checked with the others before it is there, and they without it."""
    default.write_text("watch: {interval: 1s}\n")
    path = str(default.parent / "conf.d" / "50-setup.yaml")
    (default.parent / "conf.d" / "90-z.yaml").write_text("watch: {idle_interval: 2s}\n")
    loaded = load_files(default_path=str(default), instead={path: "watch: {interval: 2s, idle_interval: 3s}\n"})
    assert (loaded.config.watch.interval, loaded.config.watch.idle_interval) == ("2s", "2s")
    assert [os.path.basename(file) for file in loaded.files] == ["moetuned.yaml", "50-setup.yaml", "90-z.yaml"]
    (default.parent / "conf.d" / "50-setup.yaml").write_text("nonsense")
    assert load_files(default_path=str(default), instead={path: None}).config.watch.interval == "1s"
    assert problems(default_path=str(default), instead={path: "watch: {interval: 1h}\n"})[0].startswith(f"{path}:1: ")
