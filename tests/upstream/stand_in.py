"""Stand-in for ``tests.unittest_tools``, which PyTensor's source distribution leaves out."""

import numpy as np
import pytensor
from pytensor.gradient import verify_grad as upstream_verify_grad

SEED = 20261123


def fetch_seed() -> int:
    return SEED


def verify_grad(op, points, *, rng=None, **kwargs) -> None:
    upstream_verify_grad(op, points, rng=rng or np.random.default_rng(SEED), **kwargs)


class InferShapeTester:
    def setup_method(self) -> None:
        """Subclasses call it."""

    def _compile_and_check(self, inputs, outputs, values, cls, **kwargs) -> None:
        """Compare the shapes that are inferred, without computing what they are of, with those of the outputs."""
        shapes = pytensor.function(inputs, [output.shape for output in outputs])
        assert not any(isinstance(node.op, cls) for node in shapes.maker.fgraph.apply_nodes)
        computed = pytensor.function(inputs, outputs)(*values)
        for shape, value in zip(shapes(*values), computed, strict=True):
            assert tuple(shape) == value.shape
