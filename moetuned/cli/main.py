"""moetunectl: finds its subcommands by file name and turns errors into one sentence and an exit code.

A subcommand is a file `cli/<name>.py` with an object `command` (a click command); "_" in the file's name is "-" on the
command line. Only the file of the command that runs is imported, so that every start is quick; what `--help` lists is read from their
sources.

Exit codes: 0 done; 1 the answer is "no"; 2 usage; 3 the daemon cannot be reached; 4 refused (permission, unsafe).
"""

from __future__ import annotations

import sys

try:
    import contextlib
    import importlib
    import os
    import re
    from typing import Any

    import click

    from moetuned import __version__
    from moetuned.api.errors import DaemonError, DaemonUnreachable
except KeyboardInterrupt:  # Ctrl-C while it is still starting
    sys.exit(130)

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4
EXIT_INTERRUPTED = 130


_COMMAND = re.compile(r'^def command\([^"]*:\n    """(.*?)"""', re.DOTALL | re.MULTILINE)
"""The docstring of a command, in its source; no default or annotation of a parameter holds a quotation mark."""


class _ReaderGone(Exception):  # noqa: N818
    """Nobody reads the output any more (head, less). Click would make a failure of BrokenPipeError."""


class _Interrupted(Exception):  # noqa: N818
    """Ctrl-C. Click would write an empty line and no word."""


class CommandFiles(click.Group):
    """A group whose commands are the modules beside this one that have an object `command`."""

    def make_context(self, *arguments: Any, **keys: Any) -> click.Context:
        """See `click.Group`; also the help text may find its reader gone."""
        try:
            return super().make_context(*arguments, **keys)
        except BrokenPipeError as error:
            raise _ReaderGone from error
        except KeyboardInterrupt as error:
            raise _Interrupted from error

    def invoke(self, ctx: click.Context) -> Any:
        """See `click.Group`."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderGone from error
        except KeyboardInterrupt as error:
            raise _Interrupted from error
        return result

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands, sorted."""
        return [name.replace("_", "-") for name in _modules() if _docstring(name) is not None]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Group`; no command is imported for it."""
        names = self.list_commands(ctx)
        room = formatter.width - 6 - max(map(len, names), default=0)
        rows = [(name, short_help(name.replace("-", "_"), room)) for name in names]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, None where there is none."""
        module = cmd_name.replace("-", "_")
        if module not in _modules() or "_" in cmd_name:
            return None
        command = getattr(importlib.import_module(f"moetuned.cli.{module}"), "command", None)
        return command if isinstance(command, click.Command) else None


_HERE = os.path.dirname(__file__)


def _modules() -> list[str]:
    return sorted(
        name[:-3] for name in os.listdir(_HERE) if name.endswith(".py") and name not in ("main.py", "__init__.py")
    )


def _docstring(module: str) -> str | None:
    """Of the module's command; None: it has none."""
    with open(os.path.join(_HERE, f"{module}.py"), encoding="utf-8") as file:
        found = _COMMAND.search(file.read())
    return None if found is None else found[1]


def short_help(module: str, room: int) -> str:
    """What `--help` says of a command in so many columns."""
    return click.Command(None, help=_docstring(module)).get_short_help_str(room)


@click.command(
    cls=CommandFiles,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  moetunectl status\n  moetunectl status --watch\n  moetunectl events --json",
)
@click.version_option(__version__, prog_name="moetunectl", message="%(prog)s %(version)s")
def group() -> None:
    """See and steer moetuned, which keeps models larger than RAM running well.

    Exit codes: 0 done; 1 the answer is "no"; 2 usage; 3 the daemon cannot be reached; 4 refused.
    """


def run(arguments: list[str] | None = None) -> int:
    """Run moetunectl with these arguments (None: the process's) and return its exit code."""
    try:
        result = group.main(args=arguments, prog_name="moetunectl", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (_Interrupted, click.Abort, KeyboardInterrupt):
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo("", err=True)  # The terminal shows ^C at the end of a line.
        click.echo("moetunectl: interrupted", err=True)
        return EXIT_INTERRUPTED
    except DaemonUnreachable as error:
        from moetuned.cli.daemon_absence import explained

        click.echo(f"moetunectl: {explained(error)}", err=True)
        return error.exit_code
    except DaemonError as error:
        click.echo(f"moetunectl: {error}", err=True)
        return error.exit_code
    except PermissionError as error:
        click.echo(f"moetunectl: {error.filename or 'this'}: {error.strerror}; run this with sudo.", err=True)
        return EXIT_REFUSED
    except _ReaderGone:  # the reader (head, less) has seen enough
        drop_output()
        return 0
    except OSError as error:  # a full disk under the output, mostly
        drop_output()
        said = error.strerror or str(error)
        what = f"{error.filename}: {said}" if error.filename else f"cannot write the output: {said}"
        click.echo(f"moetunectl: {what}.", err=True)
        return EXIT_NO
    return result if isinstance(result, int) else 0


def drop_output() -> None:
    """Let what is still to be written go nowhere: Python writes it when it ends, and would fail once more."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point of the console script."""
    if (line := os.environ.get("_MOETUNECTL_LINE")) is not None:  # a shell completes it
        from moetuned.cli.completion_answer import print_answer

        print_answer(line)
        return
    sys.exit(run())
