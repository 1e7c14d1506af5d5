"""Parallel loops: each iteration is a task, which helper threads may run.

A task is a function of a context and of the number of the iteration. The context is an array of words on the stack of the
caller: the addresses of the buffers that the task uses, and lengths and strides of inputs.

.. code-block:: text

    void task(word *context, i64 number)

Each module with tasks has a global variable :data:`HELPERS`, which is null when the code is loaded. Then the caller runs all tasks in order. Otherwise the
variable points to the helpers of :mod:`pymc_fastlogp.kernel.threads`, whose first word is the address of the function

.. code-block:: text

    void run(word *helpers, task, word *context, i64 n_tasks)

that returns after all tasks have run. The result does not depend on the order of the tasks, nor on the thread that runs a task.
"""

from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

from llvmlite import ir

from pymc_fastlogp.kernel.emit.function import NO_LOOP, Function
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import ParallelLoop
from pymc_fastlogp.kernel.ir.traversal import counters, loops_in, reads, writes
from pymc_fastlogp.kernel.llvm import ALIGNMENT, I64, POINTER, stack_variable

TASK = ir.FunctionType(ir.VoidType(), [POINTER, I64])
RUN = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER, I64])
# Symbol of the variable with the address of the helpers.
HELPERS = "pymc_fastlogp_helpers"
# Bytes of a word.
WORD = 8
# Largest number of tasks of a loop: the set of tasks that are left is a word.
MOST_TASKS = 64


class Task(NamedTuple):
    """Function of one iteration.

    Attributes
    ----------
    body : Function
        The function. Its last input is the number of the iteration. Its scratch buffers are the counters of sequential loops inside.
    inputs : list of Buffer
        The other inputs: inputs of the function that starts the task.
    """

    body: Function
    inputs: list[Buffer]


def task_of(function: Function, loop: ParallelLoop) -> Task:
    """Return the task of a parallel loop, whose body has no code yet."""
    program = function.program
    inner = tuple(counters(loop.steps))
    used = {*(reads(loop) | writes(loop))} - {loop.counter, *inner}
    # Any size may refer to the length of an input.
    given = [
        number
        for number, x in enumerate(program.inputs)
        if x in used or not all(isinstance(size, int) for size in x.shape)
    ]
    # Constants are passed on by their addresses, so that the module has them once.
    buffers = (*program.outputs, *program.scratch, *program.constants)
    own = replace(
        program,
        inputs=(*program.inputs, loop.counter),
        outputs=tuple(x for x in buffers if x in used),
        scratch=inner,
        constants=(),
        steps=loop.steps,
        fallback=None,
    )
    body = Function(
        function.module,
        own,
        f"{function.function.name}.{loop.counter.name}.body",
        [*function.contiguous, True],
        [*given, len(program.inputs)],
        function.lanes,
        function.known.uses_gathers,
    )
    body.function.linkage = "internal"
    return Task(body, [program.inputs[number] for number in given])


def emit_run(function: Function, loop: ParallelLoop, task: Task) -> None:
    """Append the run of all iterations to a function."""
    assert isinstance(loop.length, int)
    assert loop.length <= MOST_TASKS
    builder = function.builder
    when = loop.when and Scope(builder, function.known, NO_LOOP).scalar(loop.when)
    with nullcontext() if when is None else builder.if_then(when):
        for each in loops_in(loop.steps):
            function.allocate_scratch(builder, each)
        passed = (*task.inputs, *task.body.program.outputs)
        words = [x for buffer in passed for x in function.arguments_of(buffer)]
        context = stack_variable(builder, ir.ArrayType(I64, len(words)))
        for number, word in enumerate(words):
            builder.store(word, _word(builder, context, number))
        code = _task_code(task)
        _emit_start(builder, code, context, I64(loop.length))


def _task_code(task: Task) -> ir.Function:
    """Return the function of a context and a number that calls the body of a task."""
    body = task.body.finish()
    code = ir.Function(body.module, TASK, body.name.removesuffix(".body"))
    code.linkage = "internal"
    code.attributes.add("nounwind")
    code.attributes.alignstack = ALIGNMENT
    context, number = code.args
    builder = ir.IRBuilder(code.append_basic_block())
    place = len(body.args) - 1 - len(task.body.program.outputs)
    types = [arg.type for arg in body.args]
    del types[place]
    given = [builder.load(_word(builder, context, k), typ=x) for k, x in enumerate(types)]
    counter = stack_variable(builder, I64)
    builder.store(number, counter)
    given.insert(place, counter)
    builder.call(body, given)
    builder.ret_void()
    return code


def _emit_start(
    builder: ir.IRBuilder, code: ir.Function, context: ir.Value, n_tasks: ir.Value
) -> None:
    """Append the start of all tasks with the helpers, or in order if there are none."""
    helpers = builder.load(_helpers(builder), typ=POINTER)
    are_none = builder.icmp_unsigned("==", helpers, POINTER(None))
    with builder.if_else(are_none) as (alone, together):
        with alone:
            head = builder.append_basic_block("tasks")
            before = builder.block
            builder.branch(head)
            builder.position_at_end(head)
            number = builder.phi(I64)
            builder.call(code, [context, number])
            following = builder.add(number, I64(1))
            number.add_incoming(I64(0), before)
            number.add_incoming(following, head)
            after = builder.append_basic_block("done")
            builder.cbranch(builder.icmp_unsigned("<", following, n_tasks), head, after)
            builder.position_at_end(after)
        with together:
            run = builder.inttoptr(builder.load(helpers, typ=I64), RUN.as_pointer())
            builder.call(run, [helpers, code, context, n_tasks])


def _helpers(builder: ir.IRBuilder) -> ir.GlobalVariable:
    """Return the variable of the module with the address of the helpers."""
    module = builder.module
    if HELPERS in module.globals:
        return module.globals[HELPERS]
    variable = ir.GlobalVariable(module, POINTER, HELPERS)
    variable.initializer = POINTER(None)
    variable.align = WORD
    return variable


def _word(builder: ir.IRBuilder, array: ir.Value, number: int) -> ir.Value:
    return builder.gep(array, [I64(number)], source_etype=I64)
