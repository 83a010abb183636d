"""The command ``completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from secure_fedgraph.cli.options import option

PROGRAM = "secure-fedgraph"
EXAMPLES = """
\b
Examples:
  eval "$(secure-fedgraph completion bash)"      # in ~/.bashrc
  eval "$(secure-fedgraph completion zsh)"       # in ~/.zshrc
  secure-fedgraph completion fish > ~/.config/fish/completions/secure-fedgraph.fish
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@option("debug", hidden=True)
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands and options."""
    made = get_completion_class(shell)
    assert made is not None  # click has all three
    command = click.get_current_context().find_root().command
    variable = f"_{PROGRAM.replace('-', '_')}_complete".upper()
    click.echo(made(command, {}, PROGRAM, variable).source())
