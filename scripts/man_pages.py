"""The man pages, from the same commands and the same config as the reference pages."""  # noqa: INP001

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import roff
from command_model import Command, Parameter

from moetuned import __version__
from moetuned.parse.config_sample import Key, Section, sections

DATE = "2026-11-30"
"""Of the pages, as readers of man pages want one. Changes with a release."""

_MANUAL = "moetuned manual"
_HELP = Parameter(("-h", "--help"), is_option=True, word="", required=False, choices=(), text="Show the help and exit.")
_EXIT_CODES = (
    ("0", "Done."),
    ("1", 'The answer is "no": a check failed, drift was found, a model does not fit.'),
    ("2", "Wrong usage, or a file that is no use."),
    ("3", "The daemon cannot be reached."),
    ("4", "Refused: this user may not, or it would not be safe."),
    ("130", "Interrupted by Ctrl-C."),
)
_RUNTIME_DIR = ("MOETUNED_RUNTIME_DIR", "Directory of the daemon's socket. [`/run/moetuned`]")
_STATE_DIR = ("MOETUNED_STATE_DIR", "Directory of the undo journal. [`/var/lib/moetuned`]")
_XDG_RUNTIME_DIR = (
    "XDG_RUNTIME_DIR",
    "A daemon that a user without rights started has its socket in the directory `moetuned` there.",
)
CTL_ENVIRONMENT = (
    _RUNTIME_DIR,
    _STATE_DIR,
    ("NO_COLOR", "When set to anything, no colour is used."),
    ("XDG_CACHE_HOME", "How far `moetunectl verify` got is kept in the directory `moetuned` there. [`~/.cache`]"),
    _XDG_RUNTIME_DIR,
)
DAEMON_ENVIRONMENT = (_RUNTIME_DIR, _STATE_DIR, _XDG_RUNTIME_DIR)
_FILES = (
    ("/etc/moetuned/moetuned.yaml, /etc/moetuned/conf.d/*.yaml", "The config; see `moetuned.yaml`(5)."),
    ("/etc/moetuned/hooks.d/", "Programs that are run at events."),
    ("/run/moetuned/api.sock", "Where `moetunectl` asks the daemon."),
    ("/var/lib/moetuned/", "The undo journal, and what was learned of models."),
)
_SIGNALS = (
    ("SIGTERM, SIGINT", "End: settings are rolled back, backends that were started are ended."),
    (
        "SIGHUP",
        "Read the config again. One that cannot be used is said in the log, and the present one stays in force.",
    ),
)
EXAMPLE_CONFIG = """\
tuning: {profile: moe-offload}
backends:
  - name: glm
    model: /models/glm-00001-of-00007.gguf
    supervise:
      by: process
      command: [llama-server, -m, "{model}", -c, "{context}", --metrics]
    context: {preferred: 16384, minimum: 2048}
relief: {mode: act}
alerts:
  - kind: exec
    directory: /etc/moetuned/hooks.d
    on: [thrash_begin, memory_near_limit]
"""


def man_pages(ctl: Command, daemon: Command) -> Mapping[str, Callable[[], str]]:
    """Names of the files under docs/man/ and what makes each: one for a program, one for each command of moetunectl, the config."""
    commands = {f"{_name(each)}.1": partial(_command, each) for each in ctl.commands}
    return {
        "moetunectl.1": partial(_program, ctl),
        "moetuned.8": partial(_daemon, daemon),
        "moetuned.yaml.5": config_page,
        **commands,
    }


def _page(name: str, section: int, about: str, *blocks: list[str]) -> str:
    return roff.page(name, section, about, DATE, f"moetuned {__version__}", _MANUAL, *blocks)


def _name(command: Command) -> str:
    return command.words.replace(" ", "-")


def _about(command: Command) -> str:
    """As apropos(1) lists it: short."""
    return command.summary[:1].lower() + command.summary[1:].partition(": ")[0]


def _program(ctl: Command) -> str:
    commands = [roff.item(f"{roff.bold(_name(each))}(1)", f"{each.summary}.") for each in ctl.commands]
    return _page(
        ctl.words,
        1,
        _about(ctl),
        roff.heading("Synopsis"),
        roff.synopsis(
            ctl.words, [roff.italic("COMMAND"), f"[{roff.italic('OPTIONS')}]", f"[{roff.italic('ARGUMENTS')}]"]
        ),
        roff.synopsis(ctl.words, [f"{roff.bold('--help')} | {roff.bold('--version')}"]),
        roff.heading("Description"),
        _paragraphs(
            *ctl.paragraphs,
            "`moetuned` is the daemon; `moetunectl` asks and steers it. What needs no daemon works without one. "
            "Every command has a page of its own and says what it does with `--help`.",
        ),
        roff.heading("Commands"),
        *commands,
        roff.heading("Options"),
        *(_option(each) for each in (*ctl.options, _HELP)),
        *_table("Exit status", _EXIT_CODES),
        *_table("Environment", CTL_ENVIRONMENT),
        *_table("Files", _FILES),
        *_examples(ctl),
        _see_also("moetuned(8)", "moetuned.yaml(5)", *(f"{_name(each)}(1)" for each in ctl.commands)),
    )


def _command(command: Command) -> str:
    """A command of moetunectl; the commands below it are sections of its page."""
    leaves = [each for each in command.all() if not each.is_group]
    blocks: list[list[str]] = [roff.heading("Synopsis"), *(_usage(each) for each in leaves)]
    blocks += [roff.heading("Description"), _paragraphs(*command.paragraphs)]
    if command.is_group:
        blocks.append(roff.heading("Commands"))
        for each in leaves:
            blocks += [roff.subheading(each.words.partition(" ")[2]), _paragraphs(*each.paragraphs)]
            blocks += [_option(option) for option in each.options]
            blocks += [roff.example(each.examples)] if each.examples else []
        blocks += [roff.heading("Options"), _option(_HELP)]
    else:
        blocks += [roff.heading("Options"), *(_option(each) for each in (*command.options, _HELP))]
    blocks += _examples(command)
    blocks += [roff.heading("Exit status"), _paragraphs("As `moetunectl`(1) says, unless said otherwise above.")]
    return _page(
        _name(command), 1, _about(command), *blocks, _see_also("moetunectl(1)", "moetuned(8)", "moetuned.yaml(5)")
    )


def _daemon(daemon: Command) -> str:
    leaves = [each for each in daemon.all() if not each.is_group]
    blocks: list[list[str]] = [roff.heading("Synopsis"), *(_usage(each) for each in leaves)]
    blocks += [roff.heading("Description"), _paragraphs(*daemon.paragraphs), roff.heading("Commands")]
    for each in leaves:
        blocks += [roff.subheading(each.words), _paragraphs(*each.paragraphs)]
        blocks += [_option(option) for option in each.options]
        blocks += [roff.example(each.examples)]
    blocks += [roff.heading("Options"), *(_option(each) for each in (*daemon.options, _HELP))]
    codes = (
        ("0", "Ended by a signal."),
        ("2", "Wrong usage, or the config cannot be used."),
        ("4", "Its socket or port cannot be had."),
    )
    return _page(
        daemon.words,
        8,
        _about(daemon),
        *blocks,
        *_table("Signals", _SIGNALS),
        *_table("Exit status", codes),
        *_table("Environment", DAEMON_ENVIRONMENT),
        *_table("Files", _FILES),
        *_examples(daemon),
        _see_also("moetunectl(1)", "moetuned.yaml(5)", "systemctl(1)"),
    )


def config_page() -> str:
    """moetuned.yaml(5)."""
    first, *others = sections()
    return _page(
        "moetuned.yaml",
        5,
        "configuration of moetuned",
        roff.heading("Synopsis"),
        _paragraphs("`/etc/moetuned/moetuned.yaml`", "`/etc/moetuned/conf.d/*.yaml`"),
        roff.heading("Description"),
        _paragraphs(
            "`moetuned.yaml` is read first, then the files in `conf.d` in the order of their names: maps are merged, lists are "
            "replaced. Every key is optional unless it is said to be required; unknown keys are errors. Without any key moetuned "
            "watches what runs and changes nothing.",
            "A *size* is a number of bytes, or e.g. `512MiB`, `16GiB` (K, M, G and T are powers of 1024). A *duration* is a number of "
            "seconds, or e.g. `500ms`, `1s`, `5m`, `2h`.",
            "`moetunectl config check` says what is wrong with a config, `moetunectl config sample` prints one with every key "
            "explained, `systemctl reload moetuned` puts a changed one to use.",
        ),
        roff.heading("Sections"),
        *(_key(key) for key in first.keys),
        roff.heading("Keys"),
        *(block for section in others for block in _section(section)),
        roff.heading("Example"),
        roff.example(EXAMPLE_CONFIG.splitlines()),
        _see_also("moetunectl(1)", "moetuned(8)"),
    )


def _section(section: Section) -> Iterable[list[str]]:
    yield roff.subheading(section.place)
    yield _paragraphs(section.about)
    yield from (_key(key) for key in section.keys)


def _key(key: Key) -> list[str]:
    if key.place:
        return roff.item(roff.bold(key.name), f"{key.about} See `{key.place}` below.")
    default = "Required." if key.required else f"Default: `{key.default}`."
    return roff.item(roff.bold(key.name), f"{key.about} Value: {key.type}. {default}")


def _usage(command: Command) -> list[str]:
    parts = [f"[{' '.join(_names(each)[-1:])}]" for each in command.options]
    parts += [roff.italic(each.word) if each.required else f"[{roff.italic(each.word)}]" for each in command.arguments]
    return roff.synopsis(command.words, parts)


def _option(option: Parameter) -> list[str]:
    return roff.item(", ".join(_names(option)), option.text)


def _names(option: Parameter) -> list[str]:
    """Its names as they are typed; the last with the word for its value."""
    names = [roff.bold(name) for name in option.names]
    return [*names[:-1], f"{names[-1]} {roff.italic(option.word)}" if option.word else names[-1]]


def _table(title: str, rows: Iterable[tuple[str, str]]) -> list[list[str]]:
    return [roff.heading(title), *(roff.item(roff.bold(name), text) for name, text in rows)]


def _examples(command: Command) -> list[list[str]]:
    return [roff.heading("Examples"), roff.example(command.examples)] if command.examples else []


def _paragraphs(*texts: str) -> list[str]:
    return [line for text in texts for line in roff.paragraph(text)]


def _see_also(*names: str) -> list[str]:
    pages = [f"{roff.bold(name[:-3])}{name[-3:]}" for name in names]
    return [*roff.heading("See also"), *roff.filled(", ".join(pages))]
