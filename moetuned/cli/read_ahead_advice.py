"""How to keep the read-ahead that was measured: what to write into the config as it is."""

from __future__ import annotations

from collections.abc import Iterator

from moetuned.cli.read_ahead_view import ReadAheadReport
from moetuned.cli.tune_options import Options, read_config
from moetuned.host.block_devices import under_file
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.config import Profile, Tuning


def how_to_keep(options: Options, report: ReadAheadReport, setting: str, apply_it: bool) -> Iterator[str]:
    """Lines for the proposal of `report`, for the config that `options` mean; `setting` is the file of the read-ahead.

    `apply_it`: it was asked to be set now.
    """
    if report.applied is not None:
        view = report.applied
        yield f"{view.name}: {view.state}, {view.now}{f' ({view.detail})' if view.detail else ''}"
        yield "The next `moetunectl tune apply` or start of the daemon takes it away unless the config has it:"
    elif apply_it:
        yield "It is not applied, as it was not measured. To set it all the same:"
    else:
        yield "To keep it, change the config and reload the daemon:"
    yield from _config_lines(options, report, setting)
    if report.applied is None:
        yield (
            "Restart backends that run: they took the value when they opened the model."
            if apply_it or report.noisy
            else "or set it for now with --apply. Restart backends that run: they took the value when they opened the model."
        )


def _config_lines(options: Options, report: ReadAheadReport, setting: str) -> Iterator[str]:
    """What to write where, for the config as it is."""
    entry = f"read_ahead: {report.best_kib}"
    try:
        config = read_config(options)
    except ConfigError as error:
        yield f"  tuning: {{profile: moe-offload, {entry}}}"
        yield f"(The config cannot be used as it is: {error.problems[0]})"
        return
    if config.tuning == Tuning():
        yield f"  tuning: {{profile: moe-offload, {entry}}}"
    elif config.tuning.profile is Profile.OBSERVE:
        yield f"  set `profile: moe-offload` and `{entry}` under `tuning:`"
    elif config.tuning.read_ahead is not None:
        yield f"  write `{entry}` instead of `read_ahead: {config.tuning.read_ahead}` under `tuning:`"
    else:
        yield f"  add `{entry}` under `tuning:`"
    models = [backend.model for backend in config.backends if backend.model is not None]
    if not any(under_file(model).read_ahead_path == setting for model in models):
        yield f"and name the model, as it is set for the disks of the backends' models: `model: {report.model}` in a backend of"
        yield "  backends: [{name: …, model: …}]" if not config.backends else "  `backends:`"
