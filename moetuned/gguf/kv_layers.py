"""Which layers of a model keep what in memory for a context, by architecture: the table behind `kv_cache`.

From `load_hparams` and `src/models/*.cpp` of llama.cpp b11434, one row an architecture where it differs from the rule
"every layer keeps K and V of head_count_kv heads".
"""

from __future__ import annotations

import msgspec

from moetuned.gguf.header import GgufError
from moetuned.gguf.metadata import Metadata, architecture, block_count, integer, layer_integers, trunk_count


class AttentionLayer(msgspec.Struct, frozen=True, gc=False):
    """Elements of K and V that one cell holds for one layer, and of one head; `window`: only a sliding window is kept."""

    k_elements: int
    v_elements: int
    k_head: int
    v_head: int
    window: bool


class KvLayers(msgspec.Struct, frozen=True):
    """What a model keeps a context. `indexer_elements`: K of the sparse-attention indexer, one entry a layer that has one.
    `recurrent_elements`: F32 numbers of recurrent state of all layers together, a slot. `compressed`: K holds V too (MLA).
    `flash_attention`: whether llama.cpp can use it for this architecture.
    """

    attention: tuple[AttentionLayer, ...]
    window_tokens: int
    indexer_elements: tuple[int, ...]
    recurrent_elements: int
    compressed: bool = False
    flash_attention: bool = True
    rough: str | None = None


class Window(msgspec.Struct, frozen=True):
    """How an architecture uses sliding windows: every `period`-th layer is full (the first one with `full_first`).

    `default_tokens`: window when the metadata has none (0: then there are no window layers); `fixed_tokens`: the window
    whatever the metadata says, as long as it does not say 0.
    """

    period: int | None
    full_first: bool = False
    default_tokens: int = 0
    fixed_tokens: int | None = None


_WINDOWS: dict[str, Window] = {
    "afmoe": Window(4),
    "cohere2": Window(4),
    "cohere2moe": Window(4, full_first=True),
    "exaone-moe": Window(4, default_tokens=128),
    "gemma2": Window(2, default_tokens=4096),
    "gemma3": Window(6),
    "gemma3n": Window(5),
    "gemma4": Window(None),
    "gpt-oss": Window(2),
    "granite_swa": Window(None),
    "laguna": Window(4, full_first=True),
    "llama4": Window(4, default_tokens=8192, fixed_tokens=8192),
    "maple": Window(None),
    "mellum": Window(4),
    "mimo2": Window(None),
    "muse-glimmer": Window(4),
    "olmo2": Window(4),
    "plamo3": Window(8),
    "smallthinker": Window(4, full_first=True, fixed_tokens=4096),
    "spark2_5": Window(None),
    "step35": Window(None),
}
_EXAONE4_WINDOW_LAYERS = 64

_FULL_ATTENTION = """apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell cogvlm
    command-r dbrx deci deepseek deepseek2 deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone exaone4 falcon gemma glm4
    glm4moe gpt2 gptneox granite granitemoe grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2
    jais jais2 llama llama-embed maincoder minicpm minicpm3 minimax-m2 mistral3 mistral4 mpt nemotron olmo olmoe openelm
    orion paddleocr pangu-embedded phi2 phi3 phimoe plamo plm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl
    qwen3vlmoe refact seed_oss smollm3 stablelm starcoder starcoder2 talkie xverse"""
_CACHELESS = """bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert gemma-embedding
    dream llada llada-moe rnd1 clef wavtokenizer-dec t5encoder"""
_NO_CACHE = frozenset(_CACHELESS.split())
_RWKV = frozenset({"rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_SHORT_CONVOLUTION = frozenset({"lfm2", "lfm2moe"})
_KDA = frozenset({"kimi-linear", "bailingmoe3"})
_MAMBA_1 = frozenset({"mamba", "jamba"})
_RECURRENT = _RWKV | {"mamba", "mamba2"}
_HYBRID_BY_HEADS = frozenset({"jamba", "granitehybrid", "plamo2", "lfm2", "lfm2moe", "kimi-linear", "bailingmoe3"})
_HYBRID_BY_INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "minimax-01": 8}
_NEMOTRON = frozenset({"nemotron_h", "nemotron_h_moe"})
_INDEXED = frozenset({"glm-dsa", "deepseek32"})
_MLA = frozenset({"deepseek2", "deepseek32", "glm-dsa", "mistral4", "kimi-linear", "bailingmoe3"})
_EXACT = (
    frozenset(_FULL_ATTENTION.split())
    | _NO_CACHE
    | _RECURRENT
    | _HYBRID_BY_HEADS
    | _HYBRID_BY_INTERVAL.keys()
    | _NEMOTRON
    | _INDEXED
    | _WINDOWS.keys()
    | {"falcon-h1"}
)
_GEMMA3N_OWN_LAYERS = 20
_GLM_INDEXER_ALL_BELOW_CONTEXT = 1_048_576


def exact_architectures() -> frozenset[str]:
    """Architectures whose cache is known exactly and is not empty."""
    return frozenset(_EXACT - _NO_CACHE)


def kv_layers(metadata: Metadata) -> KvLayers:
    """What a model with this metadata keeps. Raises GgufError when keys are missing or contradict each other."""
    name = architecture(metadata)
    if name in _NO_CACHE:
        return KvLayers((), 0, (), 0)
    rough = (
        None
        if name in _EXACT
        else f"the cache of the architecture {name!r} is not known here; counted as usual attention"
    )
    blocks, trunk = block_count(metadata), trunk_count(metadata)
    recurrent = _recurrent_layers(metadata, name, blocks, trunk)
    windows, window_tokens = _window_layers(metadata, name, trunk)
    if _needs_pattern(metadata, name, window_tokens):
        rough = f"{name}.attention.sliding_window_pattern is missing; counted as full attention in every layer"
    attention = _attention_layers(metadata, name, recurrent, windows, trunk)
    return KvLayers(
        attention=attention,
        window_tokens=window_tokens,
        indexer_elements=_indexer(metadata, name, trunk),
        recurrent_elements=_state_elements(metadata, name) * sum(recurrent),
        compressed=_is_mla(metadata, name),
        flash_attention=name != "grok",
        rough=rough,
    )


def _attention_layers(
    metadata: Metadata, name: str, recurrent: tuple[bool, ...], windows: tuple[bool, ...], trunk: int
) -> tuple[AttentionLayer, ...]:
    if name in _RECURRENT:
        return ()
    blocks = len(recurrent)
    heads = layer_integers(metadata, f"{name}.attention.head_count", blocks)
    heads_kv = layer_integers(metadata, f"{name}.attention.head_count_kv", blocks) or heads
    if heads is None or heads_kv is None:
        raise GgufError(f"it has no {name}.attention.head_count, so the size of its KV cache is unknown")
    k_head, v_head, k_head_window, v_head_window = _head_sizes(metadata, name, heads)
    mla = _is_mla(metadata, name)
    layers = []
    for index in _cached_layers(metadata, name, recurrent, trunk):
        window = index < len(windows) and windows[index]
        k = k_head_window if window else k_head
        v = 0 if mla else v_head_window if window else v_head
        layers.append(AttentionLayer(heads_kv[index] * k, heads_kv[index] * v, k, v, window))
    return tuple(layers)


def _head_sizes(metadata: Metadata, name: str, heads: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Elements of a K head and a V head, in full layers and in window layers."""
    if not heads[0] and name != "plamo2":
        return 0, 0, 0, 0  # as llama.cpp: it reads no head sizes when the first layer has no heads
    embedding = integer(metadata, f"{name}.embedding_length")
    usual = embedding // heads[0] if embedding is not None and heads[0] else None
    k = integer(metadata, f"{name}.attention.key_length")
    v = integer(metadata, f"{name}.attention.value_length")
    k, v = usual if k is None else k, usual if v is None else v
    if k is None or v is None:
        raise GgufError(
            f"it has neither {name}.attention.key_length nor {name}.embedding_length: its head size is unknown"
        )
    k_window = integer(metadata, f"{name}.attention.key_length_swa")
    v_window = integer(metadata, f"{name}.attention.value_length_swa")
    return k, v, k if k_window is None else k_window, v if v_window is None else v_window


def _is_mla(metadata: Metadata, name: str) -> bool:
    """Whether only the compressed K is kept. deepseek2 files converted before these keys existed keep all of K and V."""
    keys = ("key_length_mla", "value_length_mla")
    return name in _MLA and all(integer(metadata, f"{name}.attention.{key}") for key in keys)


def _cached_layers(metadata: Metadata, name: str, recurrent: tuple[bool, ...], trunk: int) -> list[int]:
    """Layers with an attention cache of their own."""
    blocks = len(recurrent)
    if name == "falcon-h1":
        return list(range(blocks))
    if name in _HYBRID_BY_HEADS:
        return [index for index in range(blocks) if not recurrent[index]]
    if name in _NEMOTRON:
        width = layer_integers(metadata, f"{name}.feed_forward_length", blocks) or (0,) * blocks
        return [index for index in range(blocks) if not recurrent[index] and width[index] == 0]
    end = trunk or blocks
    if name == "gemma3n":
        end = min(end, _GEMMA3N_OWN_LAYERS)
    if name == "gemma4":
        end = min(end, blocks - (integer(metadata, f"{name}.attention.shared_kv_layers") or 0))
    return [index for index in range(end) if not recurrent[index]]


def _recurrent_layers(metadata: Metadata, name: str, blocks: int, trunk: int) -> tuple[bool, ...]:
    if name in _RECURRENT or name == "falcon-h1":
        return (True,) * blocks
    if name in _HYBRID_BY_INTERVAL:
        flags = layer_integers(metadata, f"{name}.attention.recurrent_layers", blocks)
        if flags is not None:
            return tuple(index < trunk and flag != 0 for index, flag in enumerate(flags))
        interval = integer(metadata, f"{name}.full_attention_interval") or _HYBRID_BY_INTERVAL[name]
        return tuple(index < trunk and (index + 1) % interval != 0 for index in range(blocks))
    if name not in _HYBRID_BY_HEADS and name not in _NEMOTRON:
        return (False,) * blocks
    heads_kv = layer_integers(metadata, f"{name}.attention.head_count_kv", blocks)
    if heads_kv is None:
        raise GgufError(f"it has no {name}.attention.head_count_kv, which says which layers are recurrent")
    width = (0,) * blocks
    if name in _NEMOTRON:
        width = layer_integers(metadata, f"{name}.feed_forward_length", blocks) or width
    return tuple(index < trunk and heads_kv[index] == 0 and width[index] == 0 for index in range(blocks))


def _state_elements(metadata: Metadata, name: str) -> int:
    """F32 numbers of one recurrent layer and one sequence (`n_embd_r` + `n_embd_s`)."""

    def get(key: str) -> int:
        return integer(metadata, f"{name}.{key}") or 0

    heads = (layer_integers(metadata, f"{name}.attention.head_count", 1) or (0,))[0]
    embedding, kernel, state = get("embedding_length"), get("ssm.conv_kernel"), get("ssm.state_size")
    if name in _RWKV:
        return embedding * ((get("token_shift_count") or 2) + get("wkv.head_size"))
    if name in _SHORT_CONVOLUTION:
        return embedding * max(0, get("shortconv.l_cache") - 1)
    if name in _KDA:
        size = get("kda.head_dim")
        return 3 * (kernel - 1 if kernel else 3) * heads * size + size * size * heads
    if name == "minimax-01":
        size = get("attention.key_length") or (embedding // heads if heads else 0)
        return size * size * heads
    groups = 0 if name in _MAMBA_1 else get("ssm.group_count")
    return max(0, kernel - 1) * (get("ssm.inner_size") + 2 * groups * state) + state * get("ssm.inner_size")


def _window_of(name: str, trunk: int) -> Window | None:
    if name == "exaone4":
        return Window(4, default_tokens=4096) if trunk == _EXAONE4_WINDOW_LAYERS else None
    if name == "lfm2":
        return Window(0)
    return _WINDOWS.get(name)


def _window_layers(metadata: Metadata, name: str, trunk: int) -> tuple[tuple[bool, ...], int]:
    """Which layers keep only a window, and of how many tokens; empty and 0 when the model has none."""
    rule = _window_of(name, trunk)
    if rule is None:
        return (), 0
    said = integer(metadata, f"{name}.attention.sliding_window")
    tokens = rule.default_tokens if said is None else said
    if tokens and rule.fixed_tokens is not None:
        tokens = rule.fixed_tokens
    if not tokens:
        return (), 0
    key = f"{name}.attention.sliding_window_pattern"
    if isinstance(metadata.get(key), tuple):
        flags = layer_integers(metadata, key, trunk) or ()
        return tuple(flag != 0 for flag in flags), tokens
    if rule.period is None:
        return (), tokens
    period = rule.period if name == "lfm2" else integer(metadata, key)
    period = rule.period if period is None else period
    full = 0 if rule.full_first else period - 1
    return tuple(period == 0 or index % period != full for index in range(trunk)), tokens


def _needs_pattern(metadata: Metadata, name: str, window_tokens: int) -> bool:
    rule = _WINDOWS.get(name)
    missing = not isinstance(metadata.get(f"{name}.attention.sliding_window_pattern"), tuple)
    return window_tokens > 0 and rule is not None and rule.period is None and missing


def _indexer(metadata: Metadata, name: str, trunk: int) -> tuple[int, ...]:
    """K elements of the sparse-attention indexer, one entry a layer that has one."""
    if name not in _INDEXED:
        return ()
    size = integer(metadata, f"{name}.attention.indexer.key_length")
    if size is None:
        raise GgufError(f"it has no {name}.attention.indexer.key_length, so the size of its indexer cache is unknown")
    if name == "deepseek32":
        return (size,) * trunk
    flags = layer_integers(metadata, f"{name}.attention.indexer.types", trunk)
    if flags is not None:
        return (size,) * sum(1 for flag in flags if flag)
    context = integer(metadata, f"{name}.context_length") or 0
    if context < _GLM_INDEXER_ALL_BELOW_CONTEXT:
        return (size,) * trunk
    # GLM-5.2: the first two layers and every fourth from there.
    return (size,) * sum(1 for index in range(trunk) if index < 2 or (index - 2) % 4 == 0)
