"""The stand-in's POST /slots/N?action=save|restore: files of the right size whose first line says what is in them."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

import msgspec

from moetuned.simulator.answers import RequestError
from moetuned.simulator.engine import Engine

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}")
_POLL_SECONDS = 0.01
_REFUSED = "Unable to restore slot: No available space in KV cache or invalid slot save file"


class _Body(msgspec.Struct):
    filename: str


class _Saved(msgspec.Struct):
    tokens: int
    kv_bytes_per_token: int


def slot_action(engine: Engine, directory: str, number: str, query: str, body: bytes) -> dict[str, Any]:
    """As llama-server: a slot that works on a request is waited for. Raises RequestError."""
    if not directory:
        raise RequestError(
            501, "not_supported_error", "This server does not support slots action. Start it with `--slot-save-path`"
        )
    try:
        name = msgspec.json.decode(body, type=_Body).filename
        slot = int(number)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RequestError(400, "invalid_request_error", str(error)) from error
    if not _NAME.fullmatch(name) or not 0 <= slot < engine.plan.slots:
        raise RequestError(
            400, "invalid_request_error", "Invalid filename" if slot < engine.plan.slots else "Invalid slot ID"
        )
    path = os.path.join(directory, name)
    try:
        if query == "action=save":
            return {"id_slot": slot, "filename": name, "n_saved": _save(engine, slot, path)}
        if query == "action=restore":
            return {"id_slot": slot, "filename": name, "n_restored": _restore(engine, slot, path)}
    except (OSError, msgspec.MsgspecError) as error:
        raise RequestError(400, "invalid_request_error", f"{_REFUSED}: {error}") from error
    raise RequestError(400, "invalid_request_error", "Invalid action")


def _save(engine: Engine, slot: int, path: str) -> int:
    while (tokens := engine.held(slot)) is None:
        time.sleep(_POLL_SECONDS)
    cost = engine.plan.kv_bytes_per_token
    with open(path, "wb") as file:
        file.write(json.dumps({"tokens": tokens, "kv_bytes_per_token": cost}).encode() + b"\n")
        file.truncate(max(file.tell(), tokens * cost))
    return tokens


def _restore(engine: Engine, slot: int, path: str) -> int:
    with open(path, "rb") as file:
        saved = msgspec.json.decode(file.readline(4096), type=_Saved)
    if saved.kv_bytes_per_token != engine.plan.kv_bytes_per_token or saved.tokens >= engine.plan.slot_context:
        raise RequestError(400, "invalid_request_error", _REFUSED)
    while not engine.keep(slot, saved.tokens):
        time.sleep(_POLL_SECONDS)
    return saved.tokens
