"""moetunectl completion: the script with which a shell asks `moetunectl` itself what may follow (`completion_answer`)."""

from __future__ import annotations

import click

SCRIPTS = {"bash": "bash/moetunectl", "zsh": "zsh/_moetunectl", "fish": "fish/moetunectl.fish"}
"""Shells, and their scripts below moetuned/data/completion/, each with the name by which the shell finds it."""


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""Examples:

\b
  mkdir -p ~/.local/share/bash-completion/completions ~/.zfunc ~/.config/fish/completions
  moetunectl completion bash > ~/.local/share/bash-completion/completions/moetunectl
  moetunectl completion zsh > ~/.zfunc/_moetunectl
  moetunectl completion fish > ~/.config/fish/completions/moetunectl.fish
  moetunectl completion bash | sudo tee /etc/bash_completion.d/moetunectl > /dev/null
  moetunectl completion zsh | sudo tee /usr/local/share/zsh/site-functions/_moetunectl > /dev/null
  moetunectl completion fish | sudo tee /etc/fish/completions/moetunectl.fish > /dev/null
  source <(moetunectl completion bash)""",
)
@click.argument("shell", metavar="SHELL", type=click.Choice(list(SCRIPTS)))
def command(shell: str) -> None:
    """Print the script that completes moetunectl and moetuned in SHELL: bash, zsh or fish.

    The examples set it up for you alone, for all users, and for this shell only. bash needs its package bash-completion; zsh the
    line `fpath=(~/.zfunc $fpath)` before `compinit` in ~/.zshrc. It holds in shells that are started from then on. After
    `make install` bash and zsh know it already.
    """
    from importlib.resources import files

    script = files("moetuned").joinpath("data", "completion", *SCRIPTS[shell].split("/"))
    click.echo(script.read_text(encoding="utf-8"), nl=False)
