"""What the daemon has learned of the use of a model's experts, for the commands that can use it. Read only."""

from __future__ import annotations

import os

from moetuned.cli.model_residency import Follow, look_at_experts
from moetuned.decide.heat import order
from moetuned.decide.warm_plan import KnownUse
from moetuned.host.model_files import ModelFile, ModelFileError
from moetuned.host.model_stamp import model_stamp
from moetuned.schema.heat import ExpertPages, Heat
from moetuned.state import heat_store


def learned_heat(model: ModelFile, pages: ExpertPages) -> Heat | str:
    """What was learned of this very model, or one sentence why nothing usable was; never raises."""
    try:
        stamp = model_stamp(model)
    except ModelFileError as error:
        return str(error)
    own = os.environ.get("MOETUNED_STATE_DIR")
    directory = os.path.join(os.path.abspath(own), "heat") if own else heat_store.DIRECTORY
    shape = (pages.layers, pages.experts)
    heat, why = heat_store.load(model.identity.paths, stamp, shape, directory)
    if heat is None:
        # The daemon may know the model by another name: as it is linked, not as it was named here.
        real = tuple(map(os.path.realpath, model.identity.paths))
        heat = heat_store.load(real, stamp, shape, directory)[0]
    return heat if heat is not None else why or "nothing was learned of its experts yet"


def known_use(model: ModelFile, follow: Follow = lambda _name: None) -> KnownUse | None:
    """The same for the warm plan; None where nothing is known. Nothing is paged out for it: what is in memory may be in use."""
    if model.experts is None or not model.experts.tensors:
        return None
    pages = look_at_experts(model, follow)
    if isinstance(pages, str):
        return None
    heat = learned_heat(model, pages)
    return None if isinstance(heat, str) else KnownUse(model.experts, order(heat, pages), pages)
