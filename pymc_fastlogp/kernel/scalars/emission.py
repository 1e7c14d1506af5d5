"""Which scalar Ops can be emitted, and their emission, as the table says."""

from collections.abc import Sequence

from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.scalars.forms import FORMS, converted
from pymc_fastlogp.kernel.scalars.row import UPSTREAM
from pymc_fastlogp.kernel.scalars.table import ROWS
from pymc_fastlogp.kernel.scalars.upstream import External
from pymc_fastlogp.kernel.vecmath.table import SHARED
from pymc_fastlogp.kernel.vecmath.vector import Floats, Lanes


def is_supported(op: ScalarOp, input_dtypes: Sequence[str], output_dtype: str) -> bool:
    """Return whether an Op can be emitted for these dtypes.

    Parameters
    ----------
    op : ScalarOp
        The Op, not a Composite.
    input_dtypes : sequence of str
        The dtypes of its inputs.
    output_dtype : str
        The dtype of its only output.
    """
    if type(op) not in ROWS or not {*input_dtypes, output_dtype} <= FORMS.keys():
        return False
    return ROWS[type(op)].rule(input_dtypes, output_dtype) is not None


def emit(
    op: ScalarOp, args: Sequence[Lanes], input_dtypes: Sequence[str], output_dtype: str
) -> Lanes:
    """Append an Op's instructions.

    Parameters
    ----------
    op : ScalarOp
        A supported Op.
    args : sequence of Lanes
        Its arguments, of the forms of ``input_dtypes``.
    input_dtypes : sequence of str
        Their dtypes.
    output_dtype : str
        The dtype of the output.

    Returns
    -------
    Lanes
        The result, of the form of ``output_dtype``.

    Raises
    ------
    NotImplementedError
        If it is not supported.
    """
    if not is_supported(op, input_dtypes, output_dtype):
        raise NotImplementedError(f"no vector form of {op} from {input_dtypes} to {output_dtype}")
    row = ROWS[type(op)]
    rule = row.rule(input_dtypes, output_dtype)
    assert rule is not None
    arguments = map(converted, args, row.domain(input_dtypes, output_dtype))
    return converted(rule(*arguments), output_dtype)


def emit_shared(name: str, x: Lanes, output_dtypes: Sequence[str]) -> tuple[Lanes, ...]:
    """Append the instructions of several Ops of one argument, with the same bits as alone.

    Parameters
    ----------
    name : str
        A value of :data:`~pymc_fastlogp.kernel.scalars.table.SHARED_OPS`.
    x : Lanes
        The argument.
    output_dtypes : sequence of str
        The dtypes of the results.
    """
    argument = converted(x, "float64")
    assert isinstance(argument, Floats)
    return tuple(map(converted, SHARED[name].emit(argument), output_dtypes))


def externals(op: ScalarOp, n_arguments: int) -> tuple[External, ...]:
    """Return what has to be linked to code that an Op is emitted into.

    Parameters
    ----------
    op : ScalarOp
        The Op.
    n_arguments : int
        Number of its inputs.
    """
    row = ROWS.get(type(op))
    if row is None or row.form != UPSTREAM:
        return ()
    return (External(type(op), n_arguments),)
