"""Work of one evaluation: arithmetic, loads and additions of a model's kernels, by the compiler's own programs.

``python -m benchmarks.work NAME ...`` prints a row for each model, of the suite or of the gallery. Nothing is compiled. Work counts once for each row of a
loop, and once for each column of an unrolled short axis. Loop-invariant work counts as if it were inside the loop. Code that runs only after a failed check does
not count. The result is an upper bound of the vector work, not a prediction.
"""

import sys
from collections import Counter
from math import prod

import pytensor
from rich.console import Console
from rich.table import Table

from benchmarks.compiled_graph import compiled_graph
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.ir.expressions import Compute, Load
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Program, SequentialLoop, Step
from pymc_fastlogp.kernel.ir.traversal import expressions, is_uniform, loaded, updates
from pymc_fastlogp.kernel.scalars.cost import TRANSCENDENTAL, cost_of
from tests.canaries import MODELS

# What a division costs, among scalar Ops.
DIVISION = 8

COLUMNS = ("loops", "steps", "functions", "divisions", "reads", "gathers", "stores", "scatters")


def work_of(program: Program) -> Counter[str]:
    """Return the number of operations by column; lengths that are unknown before the call count as 1."""
    return _of_steps(program.steps, 1)


def _of_steps(steps: tuple[Step, ...], times: int) -> Counter[str]:
    total: Counter[str] = Counter()
    for step in steps:
        if isinstance(step, SequentialLoop):
            n = times * (step.length if isinstance(step.length, int) else 1)
            total += Counter(steps=n) + _of_steps(step.steps, n)
        elif step.when is None:
            total += _of_loop(step, times)
    return total


def _of_loop(loop: Loop, times: int) -> Counter[str]:
    rows = times * prod(size for size in loop.domain if isinstance(size, int))
    found = Counter(loops=1 if loop.domain else 0)
    for expr in expressions(loop):
        if loop.domain and is_uniform(expr):
            continue
        if isinstance(expr, Load):
            found["gathers" if _is_data(expr.index) else "reads"] += rows
        elif isinstance(expr, Compute) and expr.dtype.startswith("float"):
            cost = cost_of(expr)
            kind = "functions" if cost >= TRANSCENDENTAL else "divisions"
            found[kind] += rows * (cost >= DIVISION)
    for statement in updates(loop):
        if any(not is_uniform(i) for i in statement.index):
            is_added = isinstance(statement, Accumulate) and _is_data(statement.index)
            found["scatters" if is_added else "stores"] += rows
    return found


def _is_data(index: tuple) -> bool:
    """Return whether a position is loaded from memory and varies by row."""
    return any(loaded([i]) and not is_uniform(i) for i in index)


def main(names: list[str]) -> None:
    """Print a row for each model."""
    table = Table("model", *COLUMNS)
    for name in names:
        full = next(each for each in MODELS if each.partition("/")[2] == name or each == name)
        with pytensor.config.change_flags(on_opt_error="ignore"):
            nodes = compiled_graph(MODELS[full]()).fgraph.apply_nodes
        programs = [node.op.build_program() for node in nodes if isinstance(node.op, FusedKernel)]
        work = sum(map(work_of, programs), Counter())
        table.add_row(name, *(f"{work[column]:,}" for column in COLUMNS))
    Console(width=140).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
