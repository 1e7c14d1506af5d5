"""Commands for developers, in a checkout: ``python -m pymc_fastlogp.dev COMMAND``.

``new-rule NAME`` writes a rule that works, to be replaced by the real one:

- ``pymc_fastlogp/rewrites/ROOM/NAME.py``, a rewriter with an example of an identity; with ``--pattern`` instead a pattern
  at the end of ``pymc_fastlogp/rewrites/scalars/identities.py``;
- a row in ``pymc_fastlogp/rules.py``, behind the last rule of the same database;
- ``tests/rewrites/test_NAME.py``, tables of cases that fire and of cases that are refused;
- a row in ``docs/rewrites/index.md``. The rule's own page is generated from the docstring of the module.

``show-rule NAME MODEL`` prints the graph that a rule gets and the graph that the rule returns, each time the rule fires on a model.
"""

import argparse
import ast
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

# Text of the skeletons that has to be replaced.
TITLE = "BEFORE -> AFTER"
REASON = "replace this by the reason for the place"
EFFECT = "replace this by a clause that says what the rule does"
PLACEHOLDERS = (TITLE, REASON, EFFECT)

RULE = '''r"""``BEFORE -> AFTER``: one sentence that says what is rewritten, in the imperative.

.. math::

    BEFORE = AFTER

The reason why value and gradient stay equal, and the work that is saved.

When it applies
---------------
The graphs that are matched.

When it refuses
---------------
The graphs that look alike but would change a value, an error or a gradient.

References
----------
The paper, the issue or the textbook of the identity.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.scalar.basic import Floor
from pytensor.tensor.math import ceil
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import operand


@node_rewriter([ceil])
def local_{name}(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``ceil(floor(x))`` to ``floor(x)``: replace this example by the rule."""
    [out], [whole] = node.outputs, node.inputs
    if operand(whole, Floor) is None or not out.type.is_super(whole.type):
        return None
    copy_stack_trace(out, whole)
    return [whole]
'''

PATTERN = """
# BEFORE -> AFTER: replace this by the identity and the reason why value and gradient stay equal. Add the identity to the docstring of the module, too.
{name} = Identity(((pt.ceil, (pt.floor, REAL)), (pt.floor, "x")))
"""

TEST = '''"""``BEFORE -> AFTER``."""

import numpy as np
import pytensor.tensor as pt
import pytest

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
)

x, y = pt.vector("x", shape=(3,)), pt.vector("y", shape=(3,))
VALUES = {{x: np.array([-1.0, 0.5, 2.0]), y: np.array([0.1, 3.0, -2.0])}}

FIRES = {{"the rule": (pt.ceil(pt.floor(x)), pt.floor(x))}}
REFUSES = {{"another operand": pt.ceil(pt.floor(x) + y)}}


@pytest.mark.parametrize("name", FIRES)
def test_is_rewritten(name):
    before, after = FIRES[name]
    assert_rewritten(before, after, rule="fastlogp_{name}")
    assert_same_value_and_gradient(before, VALUES, rtol=1e-14)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], "fastlogp_{name}")
'''


def main(arguments: list[str] | None = None, root: Path | None = None) -> int:
    """Run the command line and return the exit status.

    Parameters
    ----------
    arguments : list of str, optional
        Arguments, by default those of the process.
    root : Path, optional
        The checkout, by default the checkout of this file.
    """
    parser = argparse.ArgumentParser(prog="python -m pymc_fastlogp.dev", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    new_rule = commands.add_parser("new-rule", help="write the skeletons of a new rewrite")
    new_rule.add_argument("name", help="name without the prefix fastlogp_, such as ceil_of_floor")
    new_rule.add_argument("--room", default="scalars", help="folder below pymc_fastlogp/rewrites")
    new_rule.add_argument(
        "--pattern", action="store_true", help="an identity of scalar Ops, without a module"
    )
    new_rule.add_argument(
        "--database", default="canonicalize", choices=["canonicalize", "stabilize"]
    )
    shown = commands.add_parser("show-rule", help="print a rule's graphs before and after")
    shown.add_argument("name", help="name without the prefix fastlogp_")
    shown.add_argument("model", help="model of tests/canaries.txt, such as zoo/poisson")
    shown.add_argument("--depth", type=int, default=6, help="levels of the graphs; -1 for all")
    options = parser.parse_args(arguments)
    root = root or Path(__file__).parents[1]
    try:
        if options.command == "show-rule":
            print(show_rule(options.name, options.model, options.depth))
            return 0
        room = None if options.pattern else options.room
        written = write_rule(root, options.name, room, options.database)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print("Wrote", *written, sep="\n  ")
    print(
        f"Next: run `python -m pytest {written[-1]}`; replace the example; add a model on which the rule fires to tests/zoo.py; "
        "run `make canaries MODEL=zoo/NAME`; add a line to CHANGELOG.md."
    )
    return 0


def show_rule(name: str, model: str, depth: int = -1) -> str:
    """Rewrite a model as nutpie does, and return the graphs before and after a rule, for each time the rule fires.

    Parameters
    ----------
    name : str
        Name of the rule, without the prefix ``fastlogp_``.
    model : str
        Name of a model in the table of ``tests/canaries.py``.
    depth : int
        Number of levels of each graph; -1 for all.

    Raises
    ------
    ValueError
        If there is no such rule or model.
    """
    from pytensor.printing import debugprint

    from benchmarks.compiled_graph import compiled_graph
    from pymc_fastlogp.registration import registered
    from pymc_fastlogp.rules import RULES
    from tests.canaries import MODELS

    rules = [rule for rule in RULES if rule.name == f"fastlogp_{name}"]
    if not rules:
        raise ValueError(f"There is no rule {name} in pymc_fastlogp/rules.py.")
    if model not in MODELS:
        raise ValueError(f"There is no model {model} in tests/canaries.txt.")
    texts: list[str] = []

    def printing(transform: Any) -> Any:
        def transform_and_print(fgraph: Any, node: Any, **options: Any) -> Any:
            result = transform(fgraph, node, **options)
            if result:
                pairs = result.items() if isinstance(result, dict) else zip(node.outputs, result)
                for graphs in pairs:
                    before, after = (debugprint(x, depth=depth, file="str") for x in graphs)
                    texts.append(f"before:\n{before}after:\n{after}")
            return result

        return transform_and_print

    with ExitStack() as stack:
        for rule in rules:
            rewriter = registered(rule)
            stack.enter_context(patch.object(rewriter, "transform", printing(rewriter.transform)))
        compiled_graph(MODELS[model]())
    return "\n".join(texts) or f"{name} does not fire on {model}."


def write_rule(root: Path, name: str, room: str | None, database: str) -> list[Path]:
    """Write the skeletons of a rule into a checkout.

    Parameters
    ----------
    root : Path
        The checkout.
    name : str
        The name of the rule, an identifier.
    room : str, optional
        A folder below ``pymc_fastlogp/rewrites``; None for a pattern in ``scalars/identities.py``.
    database : str
        The database of ``optdb`` for the rule.

    Returns
    -------
    list of Path
        Files that were written or changed, relative to the checkout; the test is the last.

    Raises
    ------
    ValueError
        If the name is no identifier, the folder does not exist, or a rule of this name exists.
    """
    if not name.isidentifier():
        raise ValueError(
            f"{name!r} is not a valid module name: use letters, digits and underscores."
        )
    rewrites = Path("pymc_fastlogp") / "rewrites"
    module = rewrites / ("scalars/identities.py" if room is None else f"{room}/{name}.py")
    test = Path("tests") / "rewrites" / f"test_{name}.py"
    table, index = Path("pymc_fastlogp") / "rules.py", Path("docs") / "rewrites" / "index.md"
    if not (root / test).parent.is_dir():
        raise ValueError(
            f"{root} is not a checkout of pymc_fastlogp: there is no folder {test.parent}."
        )
    if not (root / module).parent.is_dir():
        raise ValueError(
            f"There is no folder {module.parent}: choose an existing folder with --room."
        )
    rows = (root / table).read_text()
    if f'"fastlogp_{name}"' in rows or (root / test).exists():
        raise ValueError(f"There already is a rule {name}.")
    if room is None:
        before, function = (root / module).read_text(), f"scalars.identities.{name}"
        (root / module).write_text(before + PATTERN.format(name=name))
    else:
        function = f"{room.replace('/', '.')}.{name}.local_{name}"
        (root / module).write_text(RULE.format(name=name))
    (root / table).write_text(_with_row(rows, name, function, database))
    page = (root / index).read_text()
    (root / index).write_text(_with_line(page, f"| `fastlogp_{name}` | {EFFECT} |"))
    (root / test).write_text(TEST.format(name=name))
    return [module, table, index, test]


def _with_line(page: str, line: str) -> str:
    """Return the text of a page with a line at the end of its first table."""
    head, table, rest = page.partition("|---|---|\n")
    rows, end, rest = rest.partition("\n\n")
    return f"{head}{table}{rows}\n{line}{end}{rest}"


def _with_row(source: str, name: str, function: str, database: str) -> str:
    """Return the text of ``rules.py`` with a row behind the last row of the same database."""
    [rows] = [
        node.value.elts
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.value, ast.Tuple)
        and ast.unparse(node.target) == "RULES"
    ]
    alike = [row for row in rows if f"'{database}'" in ast.unparse(row)]
    lines = source.splitlines(keepends=True)
    lines.insert(
        alike[-1].end_lineno or 0,
        f"    # In `{database}`: {REASON}.\n"
        f'    Rule(\n        "fastlogp_{name}",\n        "{function}",\n        "{database}",\n    ),\n',
    )
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
