r"""Let the softplus and logistic functions of one number share one exponential.

A likelihood with a logit link has the softplus function of its linear predictor in its value and the
logistic function in its gradient, often of :math:`x` and of :math:`-x`. Each costs an exponential in the scalar loops
that Numba makes, the softplus function a ``log1p`` besides. All of them are functions of

.. math:: e = \exp(-|x|) \in [0, 1], \qquad r = \frac{1}{1 + e}, \qquad l = \log(1 + e)

.. math:: \mathrm{softplus}(z) = \max(z, 0) + l, \qquad
          \mathrm{logistic}(z) = \begin{cases} r & z \ge 0 \\ e r & z < 0 \end{cases}, \qquad
          \exp(z) = \begin{cases} 1 / e & z \ge 0 \\ e & z < 0 \end{cases}

for :math:`z = x` and :math:`z = -x`, without cancellation and without overflow, infinities and nan included. The
logarithm is that of :mod:`~pymc_fastlogp.rewrites.compiled.unit_log1p`. Where :math:`e` is subnormal, for
:math:`z > 708.39`, its inverse has lost up to two bits.

This works inside of the ``Composite`` nodes that PyTensor's fusion made and no kernel took, so it shares
what value and gradient have in one loop, and changes nothing that a kernel computes.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import pytensor.scalar as ps
import pytensor.scalar.math as psm
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, copy_stack_trace
from pytensor.scalar.basic import ScalarVariable
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import float_dtypes

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.elemwise import is_elemwise
from pymc_fastlogp.rewrites.compiled.unit_log1p import unit_log1p

NAME = "fastlogp_shared_exp"


class Parts(NamedTuple):
    """What the functions of ``x`` and ``-x`` share, see the module's docstring."""

    zero: ScalarVariable
    one: ScalarVariable
    e: ScalarVariable
    r: ScalarVariable
    l: ScalarVariable  # noqa: E741


def _softplus(z: ScalarVariable, parts: Parts) -> ScalarVariable:
    return ps.switch(ps.ge(z, parts.zero), z, parts.zero) + parts.l


def _sigmoid(z: ScalarVariable, parts: Parts) -> ScalarVariable:
    return ps.switch(ps.ge(z, parts.zero), parts.one, parts.e) * parts.r


def _exp(z: ScalarVariable, parts: Parts) -> ScalarVariable:
    return ps.switch(ps.ge(z, parts.zero), parts.one / parts.e, parts.e)


FORMS: dict[type[ps.ScalarOp], Callable[[ScalarVariable, Parts], ScalarVariable]] = {
    psm.Softplus: _softplus,
    psm.Sigmoid: _sigmoid,
    ps.Exp: _exp,
}


class ShareExp(GraphRewriter):
    """Rewrite each ``Composite`` with several such functions of one number."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace them in a graph."""
        for node in fgraph.toposort():
            if not is_elemwise(node.op, ps.Composite):
                continue
            shared = with_shared_exp(node.op.scalar_op)
            if shared is None:
                continue
            results = Elemwise(shared)(*node.inputs, return_list=True)
            copy_stack_trace(node.outputs, results)
            decisions.fired(NAME, node.outputs[0])
            fgraph.replace_all_validate(list(zip(node.outputs, results, strict=True)), reason=NAME)


def with_shared_exp(composite: ps.Composite) -> ps.Composite | None:
    """Return the same functions with shared exponentials, None if there is nothing to share."""
    fgraph = composite.fgraph.unfreeze()
    replacements = [
        (function, FORMS[type(function.owner.op)](function.owner.inputs[0], parts))
        for x, functions in _functions_by_argument(fgraph).items()
        if _is_worth_it(functions)
        for parts in [_parts(x)]
        for function in functions
    ]
    if not replacements:
        return None
    fgraph.replace_all(replacements, reason=NAME)
    return ps.Composite(fgraph.inputs, fgraph.outputs)


def _functions_by_argument(fgraph: FunctionGraph) -> dict[ScalarVariable, list[ScalarVariable]]:
    """Return the functions of each number or its negative; inside of others come behind them."""
    functions = defaultdict(list)
    for node in reversed(fgraph.toposort()):
        [out, *_] = node.outputs
        if type(node.op) in FORMS and node.inputs[0].type == out.type and out.dtype in float_dtypes:
            functions[_without_sign(node.inputs[0])].append(out)
    return functions


def _without_sign(x: ScalarVariable) -> ScalarVariable:
    return x.owner.inputs[0] if x.owner is not None and isinstance(x.owner.op, ps.Neg) else x


def _is_worth_it(functions: list[ScalarVariable]) -> bool:
    """Whether two of them would each take an exponential, of which compilers see that it is another's."""
    return sum(not isinstance(function.owner.op, ps.Exp) for function in functions) > 1


def _parts(x: ScalarVariable) -> Parts:
    zero, one = (ps.ScalarConstant(x.type, x.type.filter(value)) for value in (0, 1))
    e = ps.exp(-abs(x))
    return Parts(zero, one, e, one / (one + e), unit_log1p(e))
