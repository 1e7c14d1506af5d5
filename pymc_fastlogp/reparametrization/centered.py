"""Non-centered effects that are sampled centered, as those whose rows know them well want to be: the limit of a site whose information is infinite.

    raw = (a - mean) / scale,   log |d raw / d a| = -log |scale|

The variable of the model is ``raw``, the sampler moves in ``a``. Of ``mean + scale * raw`` in the likelihood PyTensor leaves ``a``.
"""

from typing import Any

import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pymc.model.fgraph import ModelFreeRV
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp._upstream.pymc_dispatch import support_point_of
from pymc_fastlogp.reparametrization.effects import Effect
from pymc_fastlogp.reparametrization.sited_normal import SitedNormal, zeros_of


class CenteredNormal(SitedNormal):
    """``Normal(mu, sigma)``; :class:`CenteredTransform` reads the other two parameters, mean and scale of the effect."""

    extended_signature = "[rng],[size],(),(),(),()->[rng],()"


@support_point_of.register(CenteredNormal)
def _support_point(
    op: CenteredNormal, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return zeros_of(rv)


class CenteredTransform(Transform):
    """The change of variables of a :class:`CenteredNormal`."""

    name = "centered"
    ndim_supp = 0

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the effect."""
        mean, scale = inputs[-2:]
        return mean + scale * value

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        mean, scale = inputs[-2:]
        return (value - mean) / scale

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return that of each entry."""
        return pt.zeros_like(value) - pt.log(pt.abs(inputs[-1]))


centered_transform = CenteredTransform()


def centered(effect: Effect) -> Variable:
    """Return the free variable of a non-centered effect, to be sampled centered."""
    rv, value = effect.variable.owner.inputs
    rng, size, *parameters = rv.owner.inputs
    parameters = [*parameters, effect.mean, effect.scale]
    new = CenteredNormal.rv_op(*parameters, size=size, rng=rng)
    new_value = value.type(name=f"{effect.name}_{centered_transform.name}__")
    return ModelFreeRV(effect.name, effect.dims, centered_transform)(new, new_value)
