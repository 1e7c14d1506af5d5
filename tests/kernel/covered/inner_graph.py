"""Nodes of sites: operations on arrays, sums and joins, as one node."""

import pytensor.tensor as pt

from pymc_fastlogp.ops import SiteNode
from tests.kernel.covered.data import positive, reals
from tests.kernel.lowering import case


def node_of(build):
    """Return what makes a node of a graph."""

    def applied(*given):
        inputs = [x.type() for x in given]
        return SiteNode(inputs, build(*inputs))(*given, return_list=True)

    return applied


def site(s, w, z, information):
    d = 1.0 + pt.sqr(s) * information
    return [s * w / d + z / pt.sqrt(d), -0.5 * pt.log(d)]


def of_two_rows(x, scale):
    first, second = pt.split(x, [1, 1])
    ratio = first / scale
    rest = second - ratio * scale.sum()
    return [pt.concatenate([ratio * pt.exp(rest), rest]), pt.sqr(ratio).sum()]


def of_several_shapes(x, y):
    a = pt.exp(x)
    b = pt.sqr(a) + 1.0
    return [pt.log(b * y), b]


def nested(x):
    def inner(x):
        y = pt.tanh(x)
        return [y * y + x, y]

    one, other = node_of(inner)(2.0 * x)
    return [one - other]


def shared(x):
    """One output twice, and an input as it is."""
    y = pt.exp(x)
    return [y, y.copy(), x.copy()]


def twice(x, y):
    one = node_of(lambda x, y: [x * y])
    return [*one(x, y), *one(y, x), *one(pt.exp(x), y)]


CASES = {
    SiteNode: {
        "of groups": case(node_of(site), reals(), reals(9), reals(9), positive(9)),
        "of one group": case(node_of(site), reals(), reals(1), reals(1), positive(1)),
        "of no group": case(node_of(site), reals(), reals(0), reals(0), positive(0)),
        "of numbers": case(node_of(site), reals(), reals(), reals(), positive()),
        "by group": case(node_of(site), reals(9), reals(9), reals(9), positive(9)),
        "float32": case(node_of(site), *reals(3, 5, dtype="float32"), positive(5)),
        "split, summed and joined": case(node_of(of_two_rows), reals(2, 7), positive(1, 7)),
        "several shapes": case(node_of(of_several_shapes), reals(1, 6), positive(4, 6)),
        "one in another": case(node_of(nested), reals(3, 5)),
        "the same twice": case(node_of(shared), reals(8)),
        "several nodes": case(twice, reals(8), reals(8)),
    }
}
