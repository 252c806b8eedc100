"""Entry point of the daemon: `moetuned run`."""

from __future__ import annotations

import logging
import os
import sys

import click

from moetuned import __version__

EXIT_USAGE = 2
EXIT_REFUSED = 4


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  sudo moetuned run\n  sudo moetuned run --config ./moetuned.yaml --verbose",
)
@click.version_option(__version__, prog_name="moetuned", message="%(prog)s %(version)s")
def group() -> None:
    """Daemon that keeps Mixture-of-Experts models that are larger than RAM running well."""


@group.command(
    epilog="Examples:\n\n\b\n  sudo moetuned run\n  sudo moetuned run --config /etc/moetuned/moetuned.yaml\n"
    "  kill -HUP PID      (read the config again)"
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(),
    help="Config file. [/etc/moetuned/moetuned.yaml and conf.d, if they exist]",
)
@click.option(
    "--state-dir",
    metavar="DIR",
    envvar="MOETUNED_STATE_DIR",
    type=click.Path(file_okay=False),
    help="Undo journal. [$MOETUNED_STATE_DIR or /var/lib/moetuned]",
)
@click.option(
    "--runtime-dir",
    metavar="DIR",
    envvar="MOETUNED_RUNTIME_DIR",
    type=click.Path(file_okay=False),
    help="Socket and records. [$MOETUNED_RUNTIME_DIR or /run/moetuned]",
)
@click.option("--verbose", is_flag=True, help="Log more.")
def run(config: str | None, state_dir: str | None, runtime_dir: str | None, verbose: bool) -> None:
    """Run in the foreground until SIGTERM or Ctrl-C; then settings are rolled back and supervised backends ended.

    Without a config, or with an empty one, it watches what runs and changes nothing.
    """
    from moetuned.api.errors import ListenError
    from moetuned.daemon.app import App
    from moetuned.daemon.config_loading import load_checked
    from moetuned.daemon.loop import Loop
    from moetuned.daemon.paths import Paths
    from moetuned.host.clock import RealClock
    from moetuned.host.malloc_arenas import use_one_arena
    from moetuned.host.outside_remains import sweep
    from moetuned.host.service_notify import ServiceNotifier
    from moetuned.parse.config_problem import ConfigError
    from moetuned.state.undo_journal import default_path

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatter())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    try:
        loaded = load_checked(config)
    except ConfigError as error:
        click.echo(f"moetuned: the config cannot be used:\n{error}", err=True)
        sys.exit(EXIT_USAGE)
    for warning in loaded.warnings:
        logging.getLogger("moetuned").warning("%s", warning)
    runtime = runtime_directory(runtime_dir, loaded.config.api.socket)
    paths = Paths(
        config=config,
        journal=default_path(state_dir),
        records=os.path.join(runtime, "backends"),
        socket=os.path.join(runtime, "api.sock") if runtime != os.path.dirname(loaded.config.api.socket) else None,
    )
    clock = RealClock()
    use_one_arena()
    try:
        app = App(loaded, paths, clock, Loop(clock), ServiceNotifier())
    except ListenError as error:
        click.echo(f"moetuned: {error}", err=True)
        sys.exit(EXIT_USAGE if error.lasting else EXIT_REFUSED)
    sweep()  # no other daemon answers here: what is left is of one that is gone
    app.run()


def runtime_directory(given: str | None, socket: str) -> str:
    """Directory for the socket and the records: as given, the socket's, or the user's own where that one is root's."""
    if given:
        return os.path.abspath(given)
    from moetuned.api.socket_path import DEFAULT_DIRECTORY, user_directory

    directory, own = os.path.dirname(socket), user_directory(os.environ)
    return own if own is not None and os.geteuid() != 0 and directory == DEFAULT_DIRECTORY else directory


class _JournalFormatter(logging.Formatter):
    """Every line with its priority in front (sd-daemon(3)); the journal adds time and program itself."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{3 if record.levelno >= logging.ERROR else 4 if record.levelno >= logging.WARNING else 6}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def log_formatter() -> logging.Formatter:
    """For the journal where standard error leads there, else for a terminal or a file."""
    if os.environ.get("JOURNAL_STREAM"):
        return _JournalFormatter("%(message)s")
    return logging.Formatter("%(asctime)s %(levelname)s %(message)s")


def main() -> None:
    """Entry point of the console script."""
    group(prog_name="moetuned")
