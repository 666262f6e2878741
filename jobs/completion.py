"""The command `sparkonce completion`: a script for the shell, made from the declarations of all commands."""

from __future__ import annotations

import argparse

import shtab

from jobs.exit_status import GOOD

SHELLS = ("bash", "zsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("shell", choices=SHELLS)
    parser.epilog = 'bash: eval "$(sparkonce completion bash)"   zsh: sparkonce completion zsh > _sparkonce, in $fpath'


def run(options: argparse.Namespace) -> int:
    """Print the script; gives the exit status."""
    print(shtab.complete(_whole_parser(), shell=options.shell))
    return GOOD


def _whole_parser() -> argparse.ArgumentParser:
    from jobs.cli import whole_parser

    parser = whole_parser()
    for action in _actions(parser):
        completions = getattr(action, "completions", None)
        if completions is not None:
            action.choices = completions
    return parser


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found = []
    for action in parser._actions:  # argparse has no other way to its declarations; shtab looks there, too
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                found += _actions(each)
    return found
