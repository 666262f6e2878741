"""Tell how replicated logs lose records or part, step by step, by the rules of former times and by those of now.

The replicas, their leader and the controller are the ones that brokers run; only the network, the disks and the clock
are played. Each step tells what happened and what every replica has: records as label@epoch, a star after those that a
producer was told are written, a bar at the high watermark (HW); LEO is the log end offset, ISR who is in sync, ELR who
else is eligible. Each telling ends with a line that begins with RESULT. Exit code: 0 if the old rule shows the fault
and the new one does not; 1 if not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sparkonce.jobs.lab.story.catalogue import FAMILIES, STORIES, Story, chosen
from sparkonce.jobs.lab.story.drawing import lines, page, result
from sparkonce.jobs.lab.story.view import Telling
from sparkonce.jobs.shared.arguments import result_file
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [story.name for story in STORIES]
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "name",
        nargs="?",
        choices=[*names, *FAMILIES],
        metavar="NAME",
        help=f"one of {', '.join([*names, *FAMILIES])}",
    )
    what.add_argument("--list", action="store_true", help="tell which stories there are")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--old", dest="which", action="store_const", const="old", help="by the old rules only")
    which.add_argument("--new", dest="which", action="store_const", const="new", help="by the new rules only")
    which.add_argument("--both", dest="which", action="store_const", const="both", help="by both (default)")
    parser.set_defaults(which="both")
    parser.add_argument("--html", type=result_file, metavar="FILE", help="also draw every step on a page of its own")


def run(options: argparse.Namespace) -> int:
    """Show the selected stories; returns the exit status."""
    if options.list:
        for story in STORIES:
            print(f"{story.name:<20}{story.title} ({story.source})")
        return GOOD
    told = [(story, telling) for story in chosen(options.name) for telling in tell(story, options.which)]
    if not told:
        print(f"sparkonce story: {options.name} has no {options.which} rule", file=sys.stderr)
        return USAGE
    if options.html is not None:
        try:
            options.html.write_text(page([(story, telling) for story, (telling, _) in told]), encoding="utf-8")
        except OSError as error:
            print(f"sparkonce story: {options.html} cannot be written: {error.strerror}", file=sys.stderr)
            return USAGE
    return GOOD if all(shown for _, (_, shown) in told) else FAILED


def tell(story: Story, which: str) -> list[tuple[Telling, bool]]:
    """Play a story by the old rules, the new ones, or both, and print it; with each whether it shows what it is for."""
    told = []
    for variant in story.variants:
        if which in ("both", "old" if variant.old else "new"):
            telling = variant.play()
            shown = story.shows(variant, telling)
            print(f"\n{story.name}: {story.title} ({story.source})\nrule: {telling.rule}\n")
            for line in lines(telling):
                print(line)
            print(result(story.name, telling))
            if not shown:
                expected = "above 0" if variant.old else "0"
                print(f"sparkonce story: {story.figure} should be {expected}", file=sys.stderr)
            told.append((telling, shown))
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sparkonce.jobs.lab.story")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
