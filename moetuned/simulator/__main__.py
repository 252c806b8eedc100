"""`python -m moetuned.simulator COMMAND`: make-model, serve, ask."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "make-model": ("make_model", "write a random Mixture-of-Experts GGUF that a real llama.cpp loads"),
    "serve": ("serve", "a stand-in for llama-server: a load generator for paging, not a language model"),
    "ask": ("ask", "send completions to a llama-server or to the stand-in and print the speeds"),
}


def main(argv: list[str]) -> int:
    """Run one command; 2 when it is none of them."""
    if argv and argv[0] in COMMANDS:
        module = importlib.import_module(f"moetuned.simulator.{COMMANDS[argv[0]][0]}")
        status: int = module.main(argv[1:])
        return status
    asked = bool(argv) and argv[0] in ("-h", "--help")
    out = sys.stdout if asked else sys.stderr
    if argv and not asked:
        print(f"moetuned.simulator: {argv[0]!r} is no command", file=out)
    print("usage: python -m moetuned.simulator COMMAND ...\n", file=out)
    for name, (_, text) in COMMANDS.items():
        print(f"  {name:<12}{text}", file=out)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
