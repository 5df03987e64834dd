"""`kops completion`: the completion script of a shell."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.running.options import command
from kops.errors import UsageError


@command(
    examples=[
        ("For this shell; in ~/.bashrc, for every shell.", 'eval "$(kops completion bash)"'),
        ("For every bash of this user.", "kops completion bash -o ~/.local/share/bash-completion/completions/kops"),
        ("For zsh, where ~/.zfunc is in fpath.", "kops completion zsh -o ~/.zfunc/_kops"),
        ("For fish.", "kops completion fish -o ~/.config/fish/completions/kops.fish"),
    ]
)
def completion(out: Output, shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]) -> None:
    """Print the completion script for a shell.

    The script contains every command, option and choice, so completion starts no program. Print it again after an update of kops.
    """
    from kops.cli.running.completion import SHELLS, script

    if shell not in SHELLS:
        raise UsageError(f"no completion for {shell}; supported: {', '.join(SHELLS)}")
    out.write(script(shell))
