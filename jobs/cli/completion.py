"""The command `sparkonce completion`: a script for the shell, made from the declarations of all commands.

The completions of an argument can depend on a word before it. Such an argument has an attribute ``completions``:
a function that returns the candidates by that word. A function in the script then looks which of the words is present.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sparkonce.jobs.shared.exit_status import GOOD

SHELLS = ("bash", "zsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=SHELLS)
    parser.epilog = 'bash: eval "$(sparkonce completion bash)"   zsh: sparkonce completion zsh > _sparkonce, in $fpath'


def run(options: argparse.Namespace) -> int:
    """Print the script; returns the exit status."""
    import shtab

    print(shtab.complete(_whole_parser(), shell=options.shell))
    return GOOD


def _whole_parser() -> argparse.ArgumentParser:
    from sparkonce.jobs.cli.main import whole_parser

    parser = whole_parser()
    for action in _actions(parser):
        completions = getattr(action, "completions", None)
        if completions is not None:
            with suppress(ModuleNotFoundError):  # of an extra that is not installed
                names = completions()
                action.complete = _by_word_before(f"_sparkonce_{action.dest}", names)  # type: ignore[attr-defined]
    return parser


def _by_word_before(function: str, completions: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Return what shtab needs for an argument: the function to call in each shell, and the function's text."""
    cases = [f"      {word}) names=({shlex.join(names)}); break ;;" for word, names in completions.items()]
    head = [f"{function}() {{", "  local word names=()"]
    body = ['    case "$word" in', *cases, "    esac", "  done"]
    # Both start at the first word: an option may have the name of a format.
    bash = [*head, '  for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do', *body]
    bash += ['  compgen -W "${names[*]}" -- "$1"', "}"]
    zsh = [*head, '  for word in "${(@)words[1,CURRENT-1]}"; do', *body, '  compadd -- "${names[@]}"', "}"]
    return {"bash": function, "zsh": function, "preamble": {"bash": "\n".join(bash), "zsh": "\n".join(zsh)}}


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found = []
    for action in parser._actions:  # argparse has no other access to its declarations; shtab uses it, too
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                found += _actions(each)
    return found
