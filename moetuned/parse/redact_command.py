"""A backend's command line and environment without what is nobody's business: for recordings that people send to others.

What is kept is listed, not what is hidden: names of flags, plain numbers, words that llama.cpp's help offers, the paths of
model files and of the directory for saved slots. Everything else is `HIDDEN`, and whatever follows a flag that names a key, a token
or a prompt is hidden whatever it looks like. Where nobody can know whose a word is, it is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"
VARIABLE_PREFIXES = ("LLAMA_ARG_", "GGML_", "OMP_", "GOMP_", "KMP_")
"""Variables that say how a backend runs; no others are looked at. LLAMA_API_KEY and HF_TOKEN are not among them."""

_LONG_FLAG = re.compile(r"--[a-z]{1,20}([-_.]([a-z]{1,20}|[0-9.]{1,4}b?)){0,5}")
_SHORT_FLAG = re.compile(r"-[A-Za-z]{1,6}")
_VARIABLE = re.compile(r"[A-Z]{2,16}(_[A-Z0-9]{1,16}){0,7}")
_SECRET = re.compile(
    r"key|token|secret|passw|passphrase|credential|auth|cookie|cert|prompt|system|template|kwargs|json|url|proxy|origin|header",
    re.IGNORECASE,
)
_SECRET_SHORT = frozenset(("-hft", "-p", "-sys", "-r", "-j", "-jf", "-a", "-mu", "-mmu", "-f"))
"""Short spellings of --hf-token, --prompt, --system-prompt, --reverse-prompt, --json-schema, --alias, --model-url and --file."""
_PATH_FLAGS = frozenset(
    (
        "-m",
        "--model",
        "-mm",
        "--mmproj",
        "-md",
        "--model-draft",
        "--spec-draft-model",
        "LLAMA_ARG_MODEL",
        "LLAMA_ARG_MMPROJ",
    )
)
_DIRECTORY_FLAGS = frozenset(("--slot-save-path",))
"""A directory's last part may be its owner's name, so none of it is told where names are not."""
_REPOSITORY_FLAGS = frozenset(
    ("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_HF_FILE")
)
_TENSOR_FLAGS = frozenset(("-ot", "--override-tensor", "LLAMA_ARG_OVERRIDE_TENSOR"))
_HOST_FLAGS = frozenset(("--host", "LLAMA_ARG_HOST"))
_NUMBERS = re.compile(r"[-+]?\d{1,7}(\.\d{1,6})?([,:][-+]?\d{1,7}(\.\d{1,6})?){0,15}")
_DEVICES = re.compile(
    r"(CPU|CUDA\d{0,2}|ROCm\d{0,2}|Vulkan\d{0,2}|SYCL\d{0,2}|Metal)(,(CUDA|ROCm|Vulkan|SYCL)\d{1,2}){0,15}"
)
_HOSTS = re.compile(r"0\.0\.0\.0|127(\.\d{1,3}){3}|localhost|::1?|\[::1?\]")
_REPOSITORY = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96}){0,2}(:[\w.-]{1,24})?")
_PLACED = re.compile(r"([^=,]{1,200}=(CPU|CUDA\d{0,2}|CUDA_Host|ROCm\d{0,2}|Vulkan\d{0,2}))(,[^=,]{1,200}=(CPU|CUDA\d{0,2}|CUDA_Host|ROCm\d{0,2}|Vulkan\d{0,2})){0,15}")  # fmt: skip
_TENSOR_WORDS = frozenset(
    [
        "blk",
        "ffn",
        "exps",
        "chexps",
        "shexp",
        "gate",
        "up",
        "down",
        "attn",
        "weight",
        "bias",
        "output",
        "token",
        "embd",
        "norm",
        "q",
        "k",
        "v",
        "qkv",
        "inp",
        "ssm",
        "CPU",
        "CUDA",
        "Host",
        "ROCm",
        "Vulkan",
    ]
)
_WORDS = frozenset(
    [
        "on",
        "off",
        "auto",
        "true",
        "false",
        "enabled",
        "disabled",
        "yes",
        "no",
        "none",
        "all",
        "default",
        "f32",
        "f16",
        "bf16",
        "q8_0",
        "q6_0",
        "q5_0",
        "q5_1",
        "q4_0",
        "q4_1",
        "iq4_nl",
        "layer",
        "row",
        "tensor",
        "distribute",
        "isolate",
        "numactl",
        "linear",
        "yarn",
        "mean",
        "cls",
        "last",
        "rank",
        "mmap",
        "mlock",
        "dio",
        "direct-io",
        "mmap+mlock",
        "deepseek",
        "deepseek-legacy",
        "low",
        "medium",
        "high",
        "max-gpu",
        "attention",
        "mirror",
        "passive",
        "active",
        "cores",
        "threads",
        "close",
        "spread",
    ]
)


def redact_arguments(argv: Sequence[str], *, anonymous: bool = False) -> tuple[str, ...]:
    """A command line that may be shown to anybody. `anonymous`: programs and models without their directories."""
    if not argv:
        return ()
    told = [_program(argv[0], anonymous=anonymous)]
    flag: str | None = None
    """The flag whose value may come next."""
    for argument in argv[1:]:
        if flag is not None and _is_secret(flag):
            told.append(HIDDEN)
            flag = None
            continue
        name, equals, value = argument.partition("=")
        if not _is_flag(name):
            told.append(_value(flag, argument, anonymous=anonymous))
            flag = None
        elif equals:
            told.append(f"{name}={_value(name, value, anonymous=anonymous)}")
            flag = None
        else:
            told.append(name)
            flag = name
    return tuple(told)


def redact_environment(variables: Mapping[str, str], *, anonymous: bool = False) -> dict[str, str]:
    """Those variables that say how a backend runs, by name, with values that may be shown to anybody."""
    return {
        name: _value(name, value, anonymous=anonymous)
        for name, value in sorted(variables.items())
        if name.startswith(VARIABLE_PREFIXES) and _VARIABLE.fullmatch(name)
    }


def file_name(path: str) -> str:
    """The last part of a path."""
    return path.rstrip("/").rpartition("/")[2]


def _program(text: str, *, anonymous: bool) -> str:
    """A program that writes a title over its arguments puts all of them into the first; a directory's name may have spaces too."""
    words = text.split(None, 1)
    program = words[0] if words else ""
    if not anonymous:
        return program
    return HIDDEN if len(words) > 1 and "/" in program else file_name(program)


def _is_flag(text: str) -> bool:
    return (_LONG_FLAG.fullmatch(text) or _SHORT_FLAG.fullmatch(text)) is not None


def _is_secret(name: str) -> bool:
    """Whether what belongs to this flag or variable is hidden whatever it is."""
    if name in _SECRET_SHORT:
        return True
    return name.startswith(("--", *VARIABLE_PREFIXES)) and _SECRET.search(name) is not None and not _counts(name)


def _counts(name: str) -> bool:
    """Flags with such a word that take a number or nothing: --image-max-tokens, --slot-prompt-similarity, --cache-prompt."""
    return name.lower().replace("_", "-").endswith(("-tokens", "-similarity", "cache-prompt", "cors-credentials"))


def _value(name: str | None, value: str, *, anonymous: bool) -> str:
    if name is not None and _is_secret(name):
        return HIDDEN
    if _NUMBERS.fullmatch(value) or value in _WORDS or _DEVICES.fullmatch(value):
        return value
    if name in _PATH_FLAGS and value.isprintable() and "://" not in value:  # an address may hold a password
        return file_name(value) if anonymous else value
    if name in _DIRECTORY_FLAGS and not anonymous and value.startswith("/") and value.isprintable():
        return value
    if name in _REPOSITORY_FLAGS and not anonymous and _REPOSITORY.fullmatch(value):
        return value
    if name in _HOST_FLAGS and _HOSTS.fullmatch(value):
        return value
    if name in _TENSOR_FLAGS and _PLACED.fullmatch(value) and set(re.findall(r"[A-Za-z]+", value)) <= _TENSOR_WORDS:
        return value
    return HIDDEN
