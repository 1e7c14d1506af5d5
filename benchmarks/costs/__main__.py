"""Command line: ``python -m benchmarks.costs scatter|vecmath|matrices``."""

import argparse

from rich.console import Console

from benchmarks.costs import matrices, scatter, vecmath
from pymc_fastlogp.benchmarking.pairing import pinned

COMMANDS = {module.__name__.rpartition(".")[2]: module for module in (scatter, vecmath, matrices)}


def main() -> None:
    """Run the command that is named on one core, and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.costs")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        description = module.__doc__ or ""
        module.add_arguments(
            commands.add_parser(name, help=description.splitlines()[0], description=description)
        )
    arguments = parser.parse_args()
    with pinned():
        for table in COMMANDS[arguments.command].tables(arguments):
            Console(width=160).print(table)


if __name__ == "__main__":
    main()
