"""Recursions: states with one and several taps, outputs without state, of scalars, vectors and small matrices."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.scan.op import Scan
from pytensor.tensor.linalg import cholesky, solve_triangular

from tests.kernel.covered.data import integers, reals
from tests.kernel.lowering import case


def scan(step, sequences, states, *shared, **options):
    """Return a list of what a step gives at each time."""
    found = pytensor.scan(
        step,
        sequences=sequences,
        outputs_info=states,
        non_sequences=shared,
        strict=True,
        return_updates=False,
        **options,
    )
    return found if isinstance(found, list) else [found]


def taps(initial, *offsets):
    return {"initial": initial, "taps": list(offsets)}


def decaying(x, start):
    return scan(lambda x, s, *_: pt.tanh(x + 0.5 * s), [x], [start])


def autoregression(x, start, phi):
    return scan(
        lambda x, s2, s1, phi: phi[0] * s1 + phi[1] * s2 + x, [x], [taps(start, -2, -1)], phi
    )


def smoothing(x, level, trend):
    def step(x, level, trend):
        new = 0.3 * x + 0.7 * (level + trend)
        return new, 0.2 * (new - level) + 0.8 * trend, level + trend

    return scan(step, [x], [level, trend, None])


def rotation(x, a, b):
    """Each state is another one's last value, which is overwritten in the same step."""
    return scan(lambda x, a, b: (b, a + x), [x], [a, b])


def lagged(x, start):
    sequence = {"input": x, "taps": [-1, 0, 2]}
    return scan(lambda a, b, c, s: pt.sin(a - b + c) * s, [sequence], [start])


def learning(choice, value, rate):
    return scan(
        lambda c, q, rate: (q + rate * (c - q), pt.exp(q).sum()), [choice], [value, None], rate
    )


def filtering(y, mean, cov, shift):
    def step(y, mean, cov, shift):
        mean, cov = shift @ mean, shift @ cov @ shift.T + pt.eye(2)
        gain = cov[:, 0] / (cov[0, 0] + 0.5)
        return mean + gain * (y - mean[0]), cov - pt.outer(gain, cov[0])

    return scan(step, [y], [mean, pt.eye(2) + cov @ cov.T], shift)


def factors(x, start):
    def step(x, cov):
        factor = cholesky(cov + pt.outer(x, x))
        return factor @ factor.T / 2, solve_triangular(factor, x, lower=True)

    return scan(step, [x], [pt.eye(3) + start @ start.T, None])


def forward(emission, start, transition):
    return scan(
        lambda e, a, p: pt.logsumexp(a[:, None] + p, axis=0) + e, [emission], [start], transition
    )


def powers(x, n):
    return scan(lambda p, x: p * x, [], [pt.ones_like(x)], x, n_steps=n)


def gathered(index, table, start):
    return scan(lambda i, s, table: pt.cos(s) + table[i], [index], [start], table)


def in_turn(x, start):
    def step(x, s):
        return pt.set_subtensor(s[1], pt.sin(s[0]) * x), s[::-1] * 2

    return scan(step, [x], [start, None])


def within(x, start):
    """A recursion in each step of another one."""

    def step(row, total):
        [inner] = scan(lambda x, s: pt.tanh(x + s), [row], [total])
        return inner[-1] + 0.1 * total

    return scan(step, [x], [start])


def backwards(x, start):
    return scan(lambda x, s: x + 0.5 * s, [x], [start], go_backwards=True)


CASES = {
    Scan: {
        "one state": case(decaying, reals(9), reals()),
        "one step": case(decaying, reals(1), reals()),
        "no step": case(decaying, reals(0), reals()),
        "float32": case(
            lambda x, s: scan(lambda x, s: x * s - s, [x], [s]),
            reals(9, dtype="float32"),
            reals(dtype="float32"),
        ),
        "integers": case(lambda x, s: scan(lambda x, s: x - s, [x], [s]), integers(9), integers()),
        "two taps": case(autoregression, reals(12), reals(2), 0.5 * reals(2)),
        "two taps, no step": case(autoregression, reals(0), reals(2), 0.5 * reals(2)),
        "two states and a result": case(smoothing, reals(9), reals(), reals()),
        "states that change places": case(rotation, reals(9), reals(), reals()),
        "a sequence with taps": case(lagged, reals(9), reals()),
        "backwards": case(backwards, reals(9), reals()),
        "vectors": case(learning, reals(7, 20), reals(20), 0.2 + 0.1 * reals(20)),
        "short vectors": case(learning, reals(7, 3), reals(3), 0.2 + 0.1 * reals(3)),
        "vectors of one": case(learning, reals(7, 1), reals(1), 0.2 + 0.1 * reals(1)),
        "a Kalman filter": case(
            filtering, reals(9), reals(2), reals(2, 2), 0.4 * reals(2, 2), runtime=False
        ),
        "factors": case(factors, reals(5, 3), reals(3, 3), runtime=False),
        "a forward algorithm": case(forward, reals(6, 3), reals(3), reals(3, 3)),
        "a wide forward algorithm": case(forward, reals(3, 20), reals(20), reals(20, 20)),
        "a fixed number of steps": case(lambda x: powers(x, 6), reals(4)),
        "a given number of steps": case(powers, reals(4), np.array(3)),
        "a given number of 0 steps": case(powers, reals(4), np.array(0)),
        "gathers": case(gathered, integers(8, low=0, high=4), reals(5), reals()),
        "a step that sets": case(in_turn, reals(8), reals(3)),
        # The gradient is about histories of histories, whose lengths are sequences.
        "in a step of another": case(within, reals(4, 6), reals(), gradient=False),
    },
}
