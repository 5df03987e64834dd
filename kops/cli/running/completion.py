"""Completion scripts for bash, zsh and fish, made from the tree of commands and their options.

The scripts hold all words themselves, so that pressing Tab starts no Python. The shell completes file names itself: after a command, and
after an option whose value is not one of a list of words, the shell completes files.
"""

from __future__ import annotations

from collections.abc import Iterable

from kops.cli.running import tree
from kops.cli.running.command_line import COMMON, HELP_FLAGS, VERSION_FLAGS
from kops.cli.running.pages import Page, Parameter, pages

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """The completion script for one of `SHELLS`."""
    every = pages()
    return {"bash": bash, "zsh": zsh, "fish": fish}[shell](every)


def _groups() -> list[tuple[str, ...]]:
    """The paths of the root and of all groups that have commands."""
    return [(), *sorted(path for path in {e.path[:i] for e in tree.COMMANDS for i in range(1, len(e.path))} if tree.is_group(path))]


def _flags(options: Iterable[Parameter]) -> list[str]:
    return [flag for option in options for flag in option.flags]


def bash(every: list[Page]) -> str:
    """For bash 3.2 and later."""
    nodes = [*_groups(), *(page.entry.path for page in every)]
    steps = "|".join(f'"{" ".join(("kops", *path))}"' for path in nodes if path)
    cases = []
    for path in _groups():
        names = " ".join(name for name, _ in tree.children(path))
        flags = " ".join([*HELP_FLAGS, *([] if path else [*VERSION_FLAGS, *COMMON])])
        cases.append(f'    "{" ".join(("kops", *path))}") flags="{flags}" words="{names}" ;;')
    for page in every:
        cases += [f'    "{page.entry.name}")', *_bash_values(page.options)]
        cases.append(f'      flags="{" ".join(_flags(page.options))}" words="{" ".join(_argument_choices(page))}" ;;')
    lines = [
        "# bash completion for kops, made by: kops completion bash",
        "_kops() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path=kops flags="" words="" i',
        "  COMPREPLY=()",
        '  if [ "$cur" = "=" ]; then cur=""; elif [ "$prev" = "=" ]; then prev="${COMP_WORDS[COMP_CWORD-2]}"; fi',
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "$path ${COMP_WORDS[i]}" in',
        f'      {steps}) path="$path ${{COMP_WORDS[i]}}" ;;',
        "    esac",
        "  done",
        '  case "$path" in',
        *cases,
        "  esac",
        '  case "$cur" in',
        '    -*) COMPREPLY=($(compgen -W "$flags" -- "$cur")) ;;',
        '    *) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;',
        "  esac",
        "}",
        "complete -o bashdefault -o default -F _kops kops",
    ]
    return "\n".join(lines) + "\n"


def _bash_values(options: list[Parameter]) -> list[str]:
    """The completions after an option that takes a value: its choices, or nothing (bash then completes files)."""
    lines = ['      case "$prev" in']
    free = [flag for option in options if option.value and not option.choices for flag in option.flags]
    for option in options:
        if option.value and option.choices:
            lines.append(f'        {"|".join(option.flags)}) COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$cur")); return ;;')
    if free:
        lines.append(f"        {'|'.join(free)}) return ;;")
    return [*lines, "      esac"]


def _quoted(text: str) -> str:
    """The text in single quotes, for a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def zsh(every: list[Page]) -> str:
    """For zsh: a `_describe` for groups, `_arguments` for commands."""
    lines = ["#compdef kops", "# zsh completion for kops, made by: kops completion zsh"]
    for path in _groups():
        function = _zsh_name(path)
        lines += [f"{function}() {{", "  local -a commands", "  commands=("]
        lines += [f"    {_quoted(f'{name}:{help}')}" for name, help in tree.children(path)]
        lines += [
            "  )",
            "  if (( CURRENT == 2 )); then",
            "    _describe command commands",
            "    return",
            "  fi",
            "  shift words",
            "  (( CURRENT-- ))",
        ]
        lines.append('  case "$words[1]" in')
        lines += [f"    {name}) {_zsh_name((*path, name))} ;;" for name, _ in tree.children(path)]
        lines += ["  esac", "}"]
    for page in every:
        lines += [f"{_zsh_name(page.entry.path)}() {{", "  _arguments -s \\"]
        specs = [spec for option in page.options for spec in _zsh_option(option)]
        specs.append(_quoted("*:path:_files") if not _argument_choices(page) else _quoted(f"*:word:({' '.join(_argument_choices(page))})"))
        lines += [f"    {spec} \\" for spec in specs[:-1]] + [f"    {specs[-1]}", "}"]
    lines += ['if [ "$funcstack[1]" = "_kops" ]; then', '  _kops "$@"', "else", "  compdef _kops kops", "fi"]
    return "\n".join(lines) + "\n"


def _zsh_name(path: tuple[str, ...]) -> str:
    return "_".join(("_kops", *path))


def _zsh_option(option: Parameter) -> list[str]:
    help = option.help.replace("\n", " ").replace("[", "(").replace("]", ")").replace(":", "")
    value = ""
    if option.value:
        value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
    many = "*" if option.many else ""
    return [_quoted(f"{many}{flag}{'=' if value and len(flag) > 2 else ''}[{help}]{value}") for flag in option.flags]


def _argument_choices(page: Page) -> tuple[str, ...]:
    return next((argument.choices for argument in page.arguments if argument.choices), ())


def fish(every: list[Page]) -> str:
    """For fish: a function that finds the line's place in the tree, and one `complete` for each word."""
    nodes = [path for path in [*_groups(), *(page.entry.path for page in every)] if path]
    lines = [
        "# fish completion for kops, made by: kops completion fish",
        "function __kops_at",
        "  set -l path kops",
        "  for word in (commandline -opc)[2..-1]",
        '    switch "$path $word"',
        f"      case {' '.join(_quoted(' '.join(('kops', *path))) for path in nodes)}",
        '        set path "$path $word"',
        "    end",
        "  end",
        '  test "$path" = "$argv[1]"',
        "end",
    ]
    for path in _groups():
        at = _quoted(f'__kops_at "{" ".join(("kops", *path))}"')
        lines += [f"complete -c kops -f -n {at} -a {name} -d {_quoted(help)}" for name, help in tree.children(path)]
    for page in every:
        at = _quoted(f'__kops_at "{page.entry.name}"')
        for option in page.options:
            flags = " ".join(f"-s {f[1:]}" if len(f) == 2 else f"-l {f[2:]}" for f in option.flags)
            value = f" -x -a {_quoted(' '.join(option.choices))}" if option.choices else " -r" if option.value else ""
            lines.append(f"complete -c kops -n {at} {flags}{value} -d {_quoted(option.help.partition(chr(10))[0])}")
        if _argument_choices(page):
            lines.append(f"complete -c kops -f -n {at} -a {_quoted(' '.join(_argument_choices(page)))}")
    return "\n".join(lines) + "\n"
