"""The command line of llama-server, as far as this project's own launchers understand it.

One table gives parsing, `--help` in llama-server's style (programs look flags up there) and the `LLAMA_ARG_*` variables. As in
llama-server a flag on the command line beats its variable, the last of two flags wins, and an unknown flag is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Value = bool | int | str


class FlagError(ValueError):
    """A flag is unknown, lacks its value, or has one that is not allowed; the message names the flag."""


@dataclass(frozen=True)
class Flag:
    """One setting. `on` and `off` are its spellings; with a `hint` it takes a value, else it is a switch.

    `choices` are the allowed words; without them a value is an integer if `default` is one. `least` is the smallest
    integer allowed. A switch without an `off` spelling can only be turned on.
    """

    key: str
    on: tuple[str, ...]
    help: str
    default: Value
    hint: str = ""
    off: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = (1 << 31) - 1
    variable: str = ""


_KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_SWITCH_WORDS = ("on", "off", "auto")

# fmt: off
LLAMA_SERVER_FLAGS: tuple[Flag, ...] = (
    Flag("model", ("-m", "--model"), "model path to load", "", "FNAME", variable="LLAMA_ARG_MODEL"),
    Flag("alias", ("-a", "--alias"), "model name the API shows", "", "STRING", variable="LLAMA_ARG_ALIAS"),
    Flag("context", ("-c", "--ctx-size"), "size of the prompt context (0 = loaded from model)", 0, "N", variable="LLAMA_ARG_CTX_SIZE"),
    Flag("parallel", ("-np", "--parallel"), "number of server slots (-1 = auto)", -1, "N", least=-1, most=256, variable="LLAMA_ARG_N_PARALLEL"),
    Flag("kv_unified", ("-kvu", "--kv-unified"), "one KV buffer for all slots", False, off=("-no-kvu", "--no-kv-unified"), variable="LLAMA_ARG_KV_UNIFIED"),
    Flag("predict", ("-n", "--predict", "--n-predict"), "tokens to predict if a request does not say (-1 = no limit)", -1, "N", least=-1, variable="LLAMA_ARG_N_PREDICT"),
    Flag("batch", ("-b", "--batch-size"), "logical maximum batch size", 2048, "N", least=1, variable="LLAMA_ARG_BATCH"),
    Flag("ubatch", ("-ub", "--ubatch-size"), "physical maximum batch size", 512, "N", least=1, variable="LLAMA_ARG_UBATCH"),
    Flag("threads", ("-t", "--threads"), "threads for generation (-1 = auto)", -1, "N", least=-1, most=512, variable="LLAMA_ARG_THREADS"),
    Flag("threads_batch", ("-tb", "--threads-batch"), "threads for prompts (-1 = as --threads)", -1, "N", least=-1, most=512),
    Flag("cache_type_k", ("-ctk", "--cache-type-k"), "KV cache data type for K", "f16", "TYPE", choices=_KV_TYPES, variable="LLAMA_ARG_CACHE_TYPE_K"),
    Flag("cache_type_v", ("-ctv", "--cache-type-v"), "KV cache data type for V", "f16", "TYPE", choices=_KV_TYPES, variable="LLAMA_ARG_CACHE_TYPE_V"),
    Flag("flash_attention", ("-fa", "--flash-attn"), "flash attention", "auto", "[on|off|auto]", choices=_SWITCH_WORDS, variable="LLAMA_ARG_FLASH_ATTN"),
    Flag("cache_ram", ("-cram", "--cache-ram"), "prompt cache in MiB (-1 = no limit, 0 = off)", 8192, "N", least=-1, variable="LLAMA_ARG_CACHE_RAM"),
    Flag("checkpoints", ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"), "context checkpoints a slot", 32, "N", variable="LLAMA_ARG_CTX_CHECKPOINTS"),
    Flag("load_mode", ("-lm", "--load-mode"), "how to load the weights", "auto", "MODE", choices=("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"), variable="LLAMA_ARG_LOAD_MODE"),
    Flag("repack", ("--repack",), "weight repacking", True, off=("-nr", "--no-repack"), variable="LLAMA_ARG_REPACK"),
    Flag("fit", ("-fit", "--fit"), "cut unset settings to what fits in memory", "on", "[on|off]", choices=("on", "off"), variable="LLAMA_ARG_FIT"),
    Flag("gpu_layers", ("-ngl", "--gpu-layers", "--n-gpu-layers"), "layers to keep in VRAM (-1 = auto)", -1, "N", least=-1, variable="LLAMA_ARG_N_GPU_LAYERS"),
    Flag("warmup", ("--warmup",), "run the model once, empty, at start", True, off=("--no-warmup",)),
    Flag("host", ("--host",), "address to listen on", "127.0.0.1", "HOST", variable="LLAMA_ARG_HOST"),
    Flag("port", ("--port",), "port to listen on (0 = any free one)", 8080, "PORT", most=65535, variable="LLAMA_ARG_PORT"),
    Flag("metrics", ("--metrics",), "serve /metrics", False, variable="LLAMA_ARG_ENDPOINT_METRICS"),
    Flag("slots", ("--slots",), "serve /slots", True, off=("--no-slots",), variable="LLAMA_ARG_ENDPOINT_SLOTS"),
    Flag("slot_save_path", ("--slot-save-path",), "directory to save slots in (default: off)", "", "PATH"),
    Flag("threads_http", ("--threads-http",), "threads for HTTP requests (-1 = auto)", -1, "N", least=-1, most=512, variable="LLAMA_ARG_THREADS_HTTP"),
    Flag("timeout", ("-to", "--timeout"), "server read and write timeout in seconds", 3600, "N", least=1, variable="LLAMA_ARG_TIMEOUT"),
    Flag("verbosity", ("-lv", "--verbosity", "--log-verbosity"), "log verbosity, 0 to 5", 3, "N", most=5, variable="LLAMA_ARG_LOG_VERBOSITY"),
)
# fmt: on


def parse_flags(flags: Iterable[Flag], argv: list[str], environment: Mapping[str, str]) -> dict[str, Value]:
    """Every flag's value by its key: from `argv`, else from its variable, else its default. Raises FlagError."""
    flags = tuple(flags)
    values = {flag.key: flag.default for flag in flags}
    for flag in flags:
        if flag.variable in environment:
            values[flag.key] = _read(flag, flag.variable, environment[flag.variable])
    names = {name: (flag, name in flag.on) for flag in flags for name in flag.on + flag.off}
    position = 0
    while position < len(argv):
        name = argv[position]
        if name not in names:
            raise FlagError(f"invalid argument: {name}")
        flag, turned_on = names[name]
        position += 1
        if not flag.hint:
            values[flag.key] = turned_on
        elif position == len(argv):
            raise FlagError(f"expected value for argument: {name}")
        else:
            values[flag.key] = _read(flag, name, argv[position])
            position += 1
    return values


def required_model(values: Mapping[str, Value]) -> str:
    """The model's path. Raises FlagError when none was given."""
    path = values["model"]
    if not isinstance(path, str) or not path:
        raise FlagError("no model; give one with -m FILE")
    return path


def _read(flag: Flag, name: str, text: str) -> Value:
    if isinstance(flag.default, bool):
        words = {
            "1": True,
            "true": True,
            "on": True,
            "enabled": True,
            "0": False,
            "false": False,
            "off": False,
            "disabled": False,
        }
        if text.lower() not in words:
            raise FlagError(f"error while handling {name}: {text!r} is not one of {', '.join(words)}")
        return words[text.lower()]
    if flag.choices:
        if text not in flag.choices:
            raise FlagError(f"error while handling {name}: {text!r} is not one of {', '.join(flag.choices)}")
        return text
    if isinstance(flag.default, str):
        return text
    try:
        number = int(text)
    except ValueError:
        raise FlagError(f"error while handling {name}: {text!r} is no whole number") from None
    if not flag.least <= number <= flag.most:
        raise FlagError(f"error while handling {name}: {number} is not between {flag.least} and {flag.most}")
    return number


def help_text(title: str, flags: Iterable[Flag]) -> str:
    """`--help` in the style of llama-server: names at the left, what they do from column 40, variables below."""
    lines = [title, "", "----- flags -----", "", f"{'-h,    --help':<40}print usage and exit"]
    for flag in flags:
        left = f"{', '.join(flag.on + flag.off)} {flag.hint}".rstrip()
        default = ("enabled" if flag.default else "disabled") if isinstance(flag.default, bool) else flag.default
        text = flag.help if flag.default == "" else f"{flag.help} (default: {default})"
        lines += [f"{left:<39} {text}"] if len(left) < 40 else [left, " " * 40 + text]
        if flag.variable:
            lines.append(" " * 40 + f"(env: {flag.variable})")
    return "\n".join(lines) + "\n"
