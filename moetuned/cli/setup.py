"""`moetunectl setup`: the first five minutes, and any time later: finds, asks, shows, and does it once it was told to."""

from __future__ import annotations

import sys
from typing import Any

import click

_ANSWERS = ("backend", "context", "slots", "minimum", "relief", "profile", "alert", "mail_to", "ntfy_url")


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  sudo moetunectl setup\n  moetunectl setup --dry-run\n  sudo moetunectl setup --yes\n"
    "  sudo moetunectl setup --yes --model /models/glm-00001-of-00007.gguf --context 16384\n"
    "  sudo moetunectl setup --yes --backend llama.service --relief act --alert mail --mail-to root\n"
    "  sudo moetunectl setup --undo",
)
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: take the defaults, and do it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written and done. Needs no root.")
@click.option("--backend", "backend", metavar="BACKEND", multiple=True, help="Look after this one: a unit, a container, a model, or the name that setup gives it; none: only watch.")  # fmt: skip
@click.option("--model", "models", metavar="FILE", multiple=True, help="A GGUF file that is not where setup looks; taken where no --backend is given.")  # fmt: skip
@click.option(
    "--context", metavar="TOKENS", help="Context of a backend that setup makes a unit for. [from the estimate]"
)
@click.option("--slots", metavar="N", help="Requests that it works on at the same time. [1]")
@click.option("--minimum", metavar="TOKENS", help="How short the context may become when memory runs out. [2048]")
@click.option(
    "--relief",
    metavar="MODE",
    help="observe, or act: restart it with a shorter context before the kernel kills it. [observe]",
)
@click.option(
    "--profile", metavar="PROFILE", help="Kernel settings: moe-offload, moe-offload-zram or observe. [moe-offload]"
)
@click.option(
    "--alert", "alert", metavar="KIND", multiple=True, help="Tell it this way: exec, desktop, mail, ntfy or none."
)
@click.option("--mail-to", metavar="ADDRESS", help="For --alert mail. [root]")
@click.option("--ntfy-url", metavar="URL", help="For --alert ntfy: the topic.")
@click.option("--replace-edited", is_flag=True, help="With --yes, also replace files that were edited since setup wrote them; they are kept as FILE.bak.")  # fmt: skip
@click.option("--undo", is_flag=True, help="Take back all that setup made.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print everything as JSON, for programs. Asks nothing, so it needs --yes or --dry-run; without, its error says so.",
)
def command(**values: Any) -> None:
    """Set moetuned up: find models and backends, ask a few questions, show what will be done, and do it.

    Writes /etc/moetuned/conf.d/50-setup.yaml, makes a unit for a model or adopts the one there is, and starts moetuned. Nothing is written
    before you have seen all of it and said yes. It can be run again: what was answered before is the default then, and only what is
    different is changed.
    """
    from moetuned.cli.setup_run import Wanted, run_setup, run_undo

    given = {key: value for key in _ANSWERS if (value := _text(values[key])) is not None}
    wanted = Wanted(
        given=given,
        models=tuple(values["models"]),
        yes=values["yes"],
        dry_run=values["dry_run"],
        replace_edited=values["replace_edited"],
        as_json=values["as_json"],
    )
    code = run_undo(wanted) if values["undo"] else run_setup(wanted)
    if code:
        sys.exit(code)


def _text(value: str | tuple[str, ...] | None) -> str | None:
    if isinstance(value, tuple):
        return ",".join(value) or None
    return value
