r"""Machine code of the helpers: a caller shares its tasks with threads that wait for tasks.

The memory of the helpers is a header and a few *slots*, each for one caller at a time, such as a chain.

.. code-block:: text

    header   address of run; number of threads; number of started helpers; stop; bell; number of sleeping threads
    slot     busy; task; context; size; left; finished

``left`` is the set of tasks that nobody has claimed, a bit of a word for each task, and ``finished`` the number of tasks that have run. A claim is a
compare-and-swap that removes one task from ``left``. Task and context of a slot are read after a claim alone.

Thread :math:`i` of :math:`m` claims the next task that is left from task :math:`i n / m` on, and from the first task on behind the last. The caller is thread 0. So the
tasks of a thread are mostly the same in each run, and its cores have their data in their caches.

.. code-block:: text

    run(task, context, n):                          help():
        claim a slot by busy: 0 -> 1                    until stop:
            if there is none, run all tasks                 for each slot:
        write task, context and size, finished = 0              while a claim of k succeeds:
        left = {0, ..., n - 1}                                      task(context, k)
        ring the bell if a thread sleeps                            finished += 1
        while a claim of k succeeds:                        after some time without a task:
            task(context, k)                                    sleep until the bell rings
            finished += 1
        wait until finished = n
        busy = 0

The caller waits only for tasks that a helper has claimed, never for a helper to start. So helpers that are late, asleep, stopped, or lost in a fork
delay nothing: the caller runs the tasks. Several callers have several slots, and helpers serve all of them. A caller without a slot runs its tasks alone.

The write of ``left`` publishes the other fields: it releases them, and a successful claim acquires them. The increment of ``finished`` releases the results, and
the caller acquires them. Before it sleeps, a helper counts itself as sleeping and then looks for tasks again; a caller writes ``left`` and then reads
that count. Both orders are sequentially consistent, so one of the two sees the other. The bell is a counter on which ``futex`` of Linux waits, so a
bell that rings before the helper sleeps is not lost. ``tests/threads/test_protocol.py`` explores all interleavings of a model of these steps.
"""

import platform
import sys
from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from pymc_fastlogp.kernel.emit.parallel import MOST_TASKS
from pymc_fastlogp.kernel.llvm import I1, I32, I64, POINTER, declared

# Bytes of a word, and words of a cache line.
WORD, LINE = 8, 8
# Words of the header; each word that threads write has a cache line of its own, except during the start of helpers.
RUN, THREADS, STARTED, STOP, BELL, ASLEEP = 0, 1, 2, LINE, 2 * LINE, 3 * LINE
HEADER = 4 * LINE
# Words of a slot.
BUSY, TASK, CONTEXT, SIZE, LEFT, FINISHED = 0, 1, 2, 3, LINE, 2 * LINE
SLOT = 3 * LINE
# Callers that share tasks at the same time; further callers run alone.
N_SLOTS = 8
# Rounds without a task before a helper sleeps, and rounds of a caller before it offers its core to other threads.
PATIENCE, YIELD_AFTER = 4_000, 2_000
# Numbers of the system call and of its operations.
FUTEX = {"x86_64": 202, "aarch64": 98}
# Intrinsic that tells the core of a loop that waits, with its arguments.
PAUSE = {"x86_64": ("llvm.x86.sse2.pause", []), "aarch64": ("llvm.aarch64.hint", [1])}
WAIT_PRIVATE, WAKE_PRIVATE = 128, 129
EVERYONE = 2**31 - 1

RUN_SYMBOL, HELP_SYMBOL, STOP_SYMBOL = (f"pymc_fastlogp_{name}" for name in ("run", "help", "stop"))
TASK_TYPE = ir.FunctionType(ir.VoidType(), [POINTER, I64])


def is_supported() -> bool:
    """Return whether this platform has ``futex`` and atomics as the machine code uses them."""
    return sys.platform == "linux" and platform.machine() in FUTEX


def protocol_module() -> ir.Module:
    """Return the module with the functions ``run``, ``help`` and ``stop``."""
    module = ir.Module("pymc_fastlogp_protocol")
    _emit_run(module)
    _emit_help(module)
    _emit_stop(module)
    return module


class _Code(NamedTuple):
    """A function under construction, with the instructions of the protocol."""

    function: ir.Function
    builder: ir.IRBuilder

    @classmethod
    def of(cls, module: ir.Module, name: str, arguments: list[ir.Type]) -> "_Code":
        """Return a new function."""
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
        function.attributes.add("nounwind")
        return cls(function, ir.IRBuilder(function.append_basic_block("entry")))

    def block(self, name: str) -> ir.Block:
        """Return a new block."""
        return self.function.append_basic_block(name)

    def at(self, block: ir.Block) -> None:
        """Continue in a block, with a branch to it if the current block is open."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)
        self.builder.position_at_end(block)

    def word(self, base: ir.Value, number: int) -> ir.Value:
        """Return the address of a word."""
        address = self.builder.gep(base, [I64(number)], source_etype=I64)
        # llvmlite's atomic instructions need the type of the element.
        address.type = I64.as_pointer()
        return address

    def load(self, base: ir.Value, number: int, ordering: str = "acquire") -> ir.Value:
        """Load a word that other threads write."""
        return self.builder.load_atomic(self.word(base, number), ordering, WORD, typ=I64)

    def store(self, value: ir.Value, base: ir.Value, number: int, ordering: str) -> None:
        """Store a word that other threads read."""
        self.builder.store_atomic(value, self.word(base, number), ordering, WORD)

    def add(self, base: ir.Value, number: int, change: int, ordering: str) -> None:
        """Add to a word."""
        self.builder.atomic_rmw("add", self.word(base, number), I64(change), ordering)

    def is_not_zero(self, value: ir.Value) -> ir.Value:
        """Return whether a number differs from zero."""
        return self.builder.icmp_signed("!=", value, I64(0))

    def intrinsic(self, name: str, *arguments: ir.Value) -> ir.Value:
        """Call an intrinsic of LLVM that returns a word."""
        type_ = ir.FunctionType(I64, [x.type for x in arguments])
        return self.builder.call(declared(self.function.module, name, type_), arguments)

    def slot(self, helpers: ir.Value, number: ir.Value) -> ir.Value:
        """Return the address of a slot."""
        word = self.builder.add(self.builder.mul(number, I64(SLOT)), I64(HEADER))
        return self.builder.gep(helpers, [word], source_etype=I64)

    def has_tasks(self, slot: ir.Value) -> ir.Value:
        """Return 1 if a task of a slot is left, else 0."""
        return self.builder.zext(self.is_not_zero(self.load(slot, LEFT, "seq_cst")), I64)

    def pause(self) -> None:
        """Tell the core that the thread waits in a loop."""
        name, arguments = PAUSE[platform.machine()]
        type_ = ir.FunctionType(ir.VoidType(), [I32] * len(arguments))
        function = declared(self.function.module, name, type_)
        self.builder.call(function, [I32(x) for x in arguments])

    def futex(self, helpers: ir.Value, operation: int, value: ir.Value) -> None:
        """Wait at the bell, or wake threads that wait."""
        type_ = ir.FunctionType(I64, [I64], var_arg=True)
        syscall = declared(self.function.module, "syscall", type_)
        address = self.builder.ptrtoint(self.word(helpers, BELL), I64)
        number = I64(FUTEX[platform.machine()])
        rest = [I64(0), I64(0), I64(0)]
        self.builder.call(syscall, [number, address, I64(operation), value, *rest])

    def ring(self, helpers: ir.Value) -> None:
        """Wake all helpers that sleep or are about to sleep."""
        self.add(helpers, BELL, 1, "seq_cst")
        self.futex(helpers, WAKE_PRIVATE, I64(EVERYONE))

    def run_claimed(self, slot: ir.Value, thread: ir.Value, n_threads: ir.Value) -> ir.Value:
        """Append the run of unclaimed tasks until there are none, and return the number of tasks that ran."""
        builder = self.builder
        # A size of another run is harmless: any task that is left may be claimed.
        size = self.load(slot, SIZE, "monotonic")
        home = builder.udiv(builder.mul(thread, size), n_threads)
        before, look, claim, run, done = (
            builder.block,
            *map(self.block, ("look", "claim", "run", "none_left")),
        )
        self.at(look)
        count = builder.phi(I64)
        count.add_incoming(I64(0), before)
        left = self.load(slot, LEFT)
        builder.cbranch(self.is_not_zero(left), claim, done)
        self.at(claim)
        from_home = self.intrinsic("llvm.fshr.i64", left, left, home)
        distance = self.intrinsic("llvm.cttz.i64", from_home, I1(True))
        task = builder.and_(builder.add(home, distance), I64(MOST_TASKS - 1))
        others = builder.xor(left, builder.shl(I64(1), task))
        pair = builder.cmpxchg(self.word(slot, LEFT), left, others, "acq_rel", "monotonic")
        count.add_incoming(count, claim)
        builder.cbranch(builder.extract_value(pair, 1), run, look)
        self.at(run)
        code, context = (builder.load(self.word(slot, x), typ=I64) for x in (TASK, CONTEXT))
        function = builder.inttoptr(code, TASK_TYPE.as_pointer())
        builder.call(function, [builder.inttoptr(context, POINTER), task])
        self.add(slot, FINISHED, 1, "release")
        count.add_incoming(builder.add(count, I64(1)), run)
        builder.branch(look)
        self.at(done)
        return count


def _emit_run(module: ir.Module) -> None:
    code = _Code.of(module, RUN_SYMBOL, [POINTER, POINTER, POINTER, I64])
    helpers, task, context, n_tasks = code.function.args
    builder = code.builder
    search, following, found, alone, ring, work, wait, spin, offer, finish = map(
        code.block,
        ("search", "next", "found", "alone", "ring", "work", "wait", "spin", "offer", "finish"),
    )
    entry = builder.block
    code.at(search)
    number = builder.phi(I64)
    number.add_incoming(I64(0), entry)
    slot = code.slot(helpers, number)
    pair = builder.cmpxchg(code.word(slot, BUSY), I64(0), I64(1), "acquire", "monotonic")
    builder.cbranch(builder.extract_value(pair, 1), found, following)
    code.at(following)
    other = builder.add(number, I64(1))
    number.add_incoming(other, following)
    builder.cbranch(builder.icmp_signed("<", other, I64(N_SLOTS)), search, alone)

    code.at(alone)
    _emit_all(code, task, context, n_tasks)
    builder.ret_void()

    builder.position_at_end(found)
    for value, place in ((task, TASK), (context, CONTEXT)):
        builder.store(builder.ptrtoint(value, I64), code.word(slot, place))
    code.store(n_tasks, slot, SIZE, "monotonic")
    code.store(I64(0), slot, FINISHED, "monotonic")
    all_tasks = builder.lshr(I64(-1), builder.sub(I64(MOST_TASKS), n_tasks))
    code.store(all_tasks, slot, LEFT, "seq_cst")
    asleep = code.load(helpers, ASLEEP, "seq_cst")
    builder.cbranch(code.is_not_zero(asleep), ring, work)
    code.at(ring)
    code.ring(helpers)
    code.at(work)
    code.run_claimed(slot, I64(0), I64(1))
    before = builder.block
    code.at(wait)
    rounds = builder.phi(I64)
    rounds.add_incoming(I64(0), before)
    finished = code.load(slot, FINISHED)
    builder.cbranch(builder.icmp_signed("==", finished, n_tasks), finish, spin)
    code.at(spin)
    code.pause()
    more = builder.add(rounds, I64(1))
    rounds.add_incoming(more, spin)
    builder.cbranch(builder.icmp_signed("<", more, I64(YIELD_AFTER)), wait, offer)
    code.at(offer)
    builder.call(declared(module, "sched_yield", ir.FunctionType(I32, [])), [])
    rounds.add_incoming(I64(0), offer)
    builder.branch(wait)
    code.at(finish)
    code.store(I64(0), slot, BUSY, "release")
    builder.ret_void()


def _emit_all(code: _Code, task: ir.Value, context: ir.Value, n_tasks: ir.Value) -> None:
    """Append the run of all tasks in order."""
    builder = code.builder
    function = builder.inttoptr(builder.ptrtoint(task, I64), TASK_TYPE.as_pointer())
    before, head, after = builder.block, code.block("each"), code.block("all")
    code.at(head)
    number = builder.phi(I64)
    builder.call(function, [context, number])
    following = builder.add(number, I64(1))
    number.add_incoming(I64(0), before)
    number.add_incoming(following, head)
    builder.cbranch(builder.icmp_signed("<", following, n_tasks), head, after)
    code.at(after)


def _emit_help(module: ir.Module) -> None:
    code = _Code.of(module, HELP_SYMBOL, [POINTER])
    [helpers] = code.function.args
    builder = code.builder
    again, busy, idle, tired, sleep, wake, end = map(
        code.block, ("again", "busy", "idle", "tired", "sleep", "wake", "end")
    )
    started = builder.atomic_rmw("add", code.word(helpers, STARTED), I64(1), "monotonic")
    thread = builder.add(started, I64(1))
    n_threads = code.load(helpers, THREADS)
    entry = builder.block
    code.at(again)
    rounds = builder.phi(I64)
    rounds.add_incoming(I64(0), entry)
    is_stopped = code.is_not_zero(code.load(helpers, STOP))
    look = code.block("slots")
    builder.cbranch(is_stopped, end, look)
    code.at(look)
    n_run = _emit_slots(code, helpers, lambda slot: code.run_claimed(slot, thread, n_threads))
    builder.cbranch(code.is_not_zero(n_run), busy, idle)
    code.at(busy)
    rounds.add_incoming(I64(0), busy)
    builder.branch(again)
    code.at(idle)
    code.pause()
    more = builder.add(rounds, I64(1))
    rounds.add_incoming(more, idle)
    builder.cbranch(builder.icmp_signed("<", more, I64(PATIENCE)), again, tired)
    code.at(tired)
    bell = builder.trunc(code.load(helpers, BELL, "seq_cst"), I32)
    code.add(helpers, ASLEEP, 1, "seq_cst")
    stop = code.load(helpers, STOP, "seq_cst")
    n_left = _emit_slots(code, helpers, code.has_tasks)
    builder.cbranch(code.is_not_zero(builder.add(stop, n_left)), wake, sleep)
    code.at(sleep)
    code.futex(helpers, WAIT_PRIVATE, builder.zext(bell, I64))
    code.at(wake)
    code.add(helpers, ASLEEP, -1, "seq_cst")
    rounds.add_incoming(I64(0), wake)
    builder.branch(again)
    code.at(end)
    builder.ret_void()


def _emit_stop(module: ir.Module) -> None:
    code = _Code.of(module, STOP_SYMBOL, [POINTER])
    [helpers] = code.function.args
    code.store(I64(1), helpers, STOP, "seq_cst")
    code.ring(helpers)
    code.builder.ret_void()


def _emit_slots(
    code: _Code, helpers: ir.Value, of_slot: Callable[[ir.Value], ir.Value]
) -> ir.Value:
    """Append a loop over all slots, and return the sum of a number of each slot."""
    builder = code.builder
    before, head, after = builder.block, code.block("slot"), code.block("slots_done")
    code.at(head)
    number, total = builder.phi(I64), builder.phi(I64)
    number.add_incoming(I64(0), before)
    total.add_incoming(I64(0), before)
    found = builder.add(total, of_slot(code.slot(helpers, number)))
    following = builder.add(number, I64(1))
    number.add_incoming(following, builder.block)
    total.add_incoming(found, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, I64(N_SLOTS)), head, after)
    code.at(after)
    return found
