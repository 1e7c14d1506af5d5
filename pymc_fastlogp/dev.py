"""Skeletons for developers: ``python -m pymc_fastlogp.dev new-rule NAME --room ROOM --database DATABASE``.

The command runs in a checkout. For a rule ``NAME`` the command writes

- ``pymc_fastlogp/rewrites/ROOM/NAME.py``, a rewriter with an example of an identity;
- a row in ``pymc_fastlogp/rules.py``, behind the last rule of the same database;
- ``tests/rewrites/test_NAME.py``, tables of cases that fire and of cases that are refused.

The documentation page of the rule is generated from the module's docstring.
"""

import argparse
import ast
import sys
from pathlib import Path

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
    assert_rewritten(before, after)
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
    commands = parser.add_subparsers(required=True)
    new_rule = commands.add_parser("new-rule", help="write the skeletons of a new rewrite")
    new_rule.add_argument("name", help="name without the prefix fastlogp_, such as ceil_of_floor")
    new_rule.add_argument("--room", default="scalars", help="folder below pymc_fastlogp/rewrites")
    new_rule.add_argument(
        "--database", default="canonicalize", choices=["canonicalize", "stabilize", "specialize"]
    )
    options = parser.parse_args(arguments)
    root = root or Path(__file__).parents[1]
    try:
        written = write_rule(root, options.name, options.room, options.database)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print("Wrote", *written, sep="\n  ")
    print(
        "Next: replace the example; run the new tests; add a model on which the rule fires to tests/zoo.py; run `make canaries`; "
        "add a line to CHANGELOG.md."
    )
    return 0


def write_rule(root: Path, name: str, room: str, database: str) -> list[Path]:
    """Write the skeletons of a rule into a checkout.

    Parameters
    ----------
    root : Path
        The checkout.
    name : str
        The name of the rule, an identifier.
    room : str
        A folder below ``pymc_fastlogp/rewrites``.
    database : str
        The database of ``optdb`` for the rule.

    Returns
    -------
    list of Path
        Files that were written or changed, relative to the checkout.

    Raises
    ------
    ValueError
        If the name is no identifier, the folder does not exist, or a rule of this name exists.
    """
    if not name.isidentifier():
        raise ValueError(
            f"{name!r} is not a valid module name: use letters, digits and underscores."
        )
    package = Path("pymc_fastlogp")
    module = package / "rewrites" / room / f"{name}.py"
    test = Path("tests") / "rewrites" / f"test_{name}.py"
    table = package / "rules.py"
    if not (root / test).parent.is_dir():
        raise ValueError(
            f"{root} is not a checkout of pymc_fastlogp: there is no folder {test.parent}."
        )
    if not (root / module).parent.is_dir():
        raise ValueError(
            f"There is no folder {module.parent}: choose an existing folder with --room."
        )
    if (root / module).exists() or (root / test).exists():
        raise ValueError(f"There already is a rule {name}.")
    (root / module).write_text(RULE.format(name=name))
    (root / test).write_text(TEST.format(name=name))
    function = f"{room.replace('/', '.')}.{name}.local_{name}"
    rows = _with_row((root / table).read_text(), name, function, database)
    (root / table).write_text(rows)
    return [module, table, test]


def _with_row(source: str, name: str, function: str, database: str) -> str:
    """Return the text of ``rules.py`` with a row behind the last row of the same database and phase."""
    [rows] = [
        node.value.elts
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.value, ast.Tuple)
        and ast.unparse(node.target) == "RULES"
    ]
    phase = ", Phase.AFTER_GRADIENT" if database == "specialize" else ""
    alike = [row for row in rows if f"'{database}'{phase}" in ast.unparse(row)]
    lines = source.splitlines(keepends=True)
    lines.insert(
        alike[-1].end_lineno or 0,
        f'    # In `{database}`: replace this by the reason for the place.\n    Rule(\n        "fastlogp_{name}",\n        "{function}",\n        "{database}"{phase},\n    ),\n',
    )
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
