"""Graphs with each Op that lowering covers, and values to run them at."""

from tests.kernel.covered import elemwise, indexing, inner_graph, linalg, reduction, scan, shape

CASES = {
    **elemwise.CASES,
    **reduction.CASES,
    **indexing.CASES,
    **shape.CASES,
    **linalg.CASES,
    **scan.CASES,
    **inner_graph.CASES,
}
