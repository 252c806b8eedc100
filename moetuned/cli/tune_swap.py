"""Swap in the subcommands of `moetunectl tune`: planned, made, checked and taken away beside the settings.

Only on the machine itself: a tree of files (`--root`) has no swap. Imported when a subcommand runs.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from moetuned.cli.tune_options import Options
from moetuned.host.fs import RealFS
from moetuned.host.swap_devices import Progress
from moetuned.host.swap_home import present_swap_warnings
from moetuned.host.swap_host import RealSwapHost
from moetuned.parse.config_values import wished_swap
from moetuned.schema.config import Config
from moetuned.schema.snapshot import TunableView, TuneAnswer
from moetuned.schema.swap import SwapStep
from moetuned.schema.units import format_bytes
from moetuned.state import swap

if TYPE_CHECKING:
    from moetuned.api.client import Client

FOLLOW_SECONDS = 180.0
"""A daemon gives up swapping off one swap after a minute, and has two at most."""
FOLLOW_EVERY_SECONDS = 0.5


def is_recorded(options: Options) -> bool:
    """Whether there is swap that moetuned made."""
    return options.root == "/" and swap.exists(_directory(options))


def planned_swap(options: Options, config: Config) -> tuple[SwapStep, ...]:
    """What apply would do about swap; changes nothing."""
    if options.root != "/":
        return ()
    return swap.plan(RealSwapHost(_directory(options)), _directory(options), wished_swap(config.tuning))


def apply_swap(options: Options, config: Config) -> tuple[TunableView, ...]:
    """Make swap as the config wishes. The caller holds the journal."""
    wish = wished_swap(config.tuning)
    if options.root != "/" or (wish is None and not is_recorded(options)):
        return ()
    return swap.apply_slowly(RealSwapHost(_directory(options)), _directory(options), wish, _progress(), by_hand=True)


def verify_swap(options: Options, steps: tuple[SwapStep, ...]) -> tuple[TunableView, ...]:
    """How swap stands; what moetuned made and nobody wishes for any more is said, too."""
    if not steps and not is_recorded(options):
        return ()
    return swap.verify(RealSwapHost(_directory(options)), _directory(options), steps)


def rollback_swap(options: Options, patience_seconds: float | None) -> tuple[TunableView, ...]:
    """Take away what moetuned made. The caller holds the journal. `patience_seconds`: what swapping off may take (None: any time)."""
    if not is_recorded(options):
        return ()
    return swap.rollback_slowly(RealSwapHost(_directory(options)), _directory(options), _progress(), patience_seconds)


def follow(client: Client, answer: TuneAnswer) -> TuneAnswer:
    """A daemon's answer once it has made or taken away its swap, which it does on the side; after three minutes as it stands then.

    Raises DaemonError, DaemonUnreachable.
    """
    began = time.monotonic()
    while any(is_to_come(view) for view in answer.tuning) and time.monotonic() - began < FOLLOW_SECONDS:
        if sys.stderr.isatty():
            click.echo(f"\rthe daemon is at its swap, {time.monotonic() - began:.0f} s   ", nl=False, err=True)
        time.sleep(FOLLOW_EVERY_SECONDS)
        swaps = tuple(view for view in client.status().tuning if _is_swap(view))
        others = tuple(view for view in answer.tuning if not _is_swap(view))
        answer = msgspec.structs.replace(answer, tuning=(*others, *swaps))
    if sys.stderr.isatty() and time.monotonic() - began >= FOLLOW_EVERY_SECONDS:
        click.echo("", err=True)
    return answer


def is_to_come(view: TunableView) -> bool:
    """Whether it is a swap that is being made or taken away."""
    return _is_swap(view) and view.state == "planned"


def _is_swap(view: TunableView) -> bool:
    return view.name == "swap" or view.name.startswith("swap ")


def warnings(options: Options) -> tuple[str, ...]:
    """What is wrong with the swap that is on, whoever made it."""
    return present_swap_warnings(RealFS()) if options.root == "/" else ()


def _directory(options: Options) -> str:
    return os.path.dirname(options.journal)


def _progress() -> Progress | None:
    """Bytes that are still to be read back, on one line of a terminal."""
    if not sys.stderr.isatty():
        return None
    return lambda left: click.echo(f"\rswapping off: {format_bytes(left)} to be read back   ", nl=False, err=True)
