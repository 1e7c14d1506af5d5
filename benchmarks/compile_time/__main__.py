"""Command line: ``python -m benchmarks.compile_time growth|rewriting|new_data|rows|models``."""

import argparse

from rich.console import Console

from benchmarks.compile_time import growth, models, new_data, rewriting, rows

COMMANDS = {
    module.__name__.rpartition(".")[2]: module
    for module in (growth, rewriting, new_data, rows, models)
}


def main() -> None:
    """Run the command that is named, and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        description = module.__doc__ or ""
        module.add_arguments(
            commands.add_parser(name, help=description.splitlines()[0], description=description)
        )
    arguments = parser.parse_args()
    for table in COMMANDS[arguments.command].tables(arguments):
        Console(width=160).print(table)


if __name__ == "__main__":
    main()
