"""A pair of discrete measures merged onto a lattice of losses, so that it is less distinguishable, and hardly so.

In the order of their losses, atoms are collected into groups. A group begins with what is left of the first atom, of
loss at most l, l the next lattice point above it, and takes in atoms until its P is e^l times its Q exactly; of the
last one it takes in the share that is needed. What is left of that atom begins the next group. Groups are a randomised
post-processing of the outputs, and their losses are lattice points, so that sums of them need no rounding.

A group has atoms from about one step below its point to one step above. What is lost is the variance within groups, of
second order in the step. The same can be done from the largest loss downwards, l the next lattice point below: better
where nearly all mass lies within a step, and lifting that much would take in all atoms of large losses. Only the last
group may find no atoms to balance it: what is left over is rounded down, and so is an atom that is within rounding of a
lattice point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plrvo.noise.base import Array

_NEAR = 2.0**-36  # of a loss, plus one: an atom so little above a lattice point is on it
_MOST_ATOMS = 5_000  # that are collected one by one


class Merged(NamedTuple):
    """P-masses at losses of at least origin + step * places, in increasing order.

    `other` are the Q-masses, which are smaller than e^-loss times `mass` where losses were rounded down. `most` is how
    many atoms went into one of them.
    """

    origin: float
    step: float
    places: NDArray[np.int64]
    mass: Array
    other: Array
    most: int

    @property
    def losses(self) -> Array:
        return np.asarray(self.origin + self.step * self.places, dtype=float)


def merge(p: Array, q: Array, step: float, origin: float = 0.0, downwards: bool = False) -> Merged:
    """The pair (p, q) on the lattice `origin` + `step` times integers; groups begin at the largest loss if told so."""
    keep = (p > 0) & (q > 0)
    p, q = p[keep], q[keep]
    order = np.argsort(p / q, kind="stable")
    p, q = p[order], q[order]
    bundle = -(-len(p) // _MOST_ATOMS)
    if bundle > 1:  # neighbours become one: a post-processing too
        starts = np.arange(0, len(p), bundle)
        p, q = np.add.reduceat(p, starts), np.add.reduceat(q, starts)
    losses = np.log(p / q)
    if downwards:  # the pair (q, p) upwards: its losses have the other sign
        points = -np.floor((losses - origin) / step)[::-1]
        places, other, mass, most = _groups(
            q[::-1], p[::-1], points.astype(np.int64), np.exp(origin - step * points), left=0
        )
        places = -places
    else:
        points = np.ceil((losses - origin - _NEAR * (1 + np.abs(losses))) / step)
        places, mass, other, most = _groups(p, q, points.astype(np.int64), np.exp(-(origin + step * points)), left=-1)
    found, where = np.unique(places, return_inverse=True)
    total = np.bincount(where, mass).astype(float)
    filled = total > 0
    in_q = np.bincount(where, other).astype(float)
    return Merged(origin, step, found[filled], total[filled], in_q[filled], bundle + most)


def _groups(
    p: Array, q: Array, points: NDArray[np.int64], factors: Array, left: int
) -> tuple[NDArray[np.int64], Array, Array, int]:
    """Places and masses of the groups, and the most atoms in one; `factors` are e^-l for the point above an atom.

    `left` is how far from its point the end of the last group goes, which finds nothing to balance it.
    """
    ps, qs, above, scale = p.tolist(), q.tolist(), points.tolist(), factors.tolist()
    places, masses, others = [], [], []
    count, i, share, most = len(ps), 0, 1.0, 0
    while i < count:
        first, place, factor = i, above[i], scale[i]
        missing = short = mass = found = 0.0
        short_q = mass_q = 0.0
        while i < count and above[i] <= place:
            lack = share * (qs[i] - ps[i] * factor)
            if lack > 0:
                missing += lack
                short += share * ps[i]
                short_q += share * qs[i]
            else:
                found -= lack
                mass += share * ps[i]
                mass_q += share * qs[i]
            share = 1.0
            i += 1
        while found < missing and i < count:
            surplus = ps[i] * factor - qs[i]
            if found + surplus > missing:
                taken = (missing - found) / surplus
                mass += taken * ps[i]
                mass_q += taken * qs[i]
                share, found = 1 - taken, missing
            else:
                found += surplus
                mass += ps[i]
                mass_q += qs[i]
                i += 1
        balanced = 1.0 if found >= missing else found / missing
        places += [place, place + left]
        masses += [mass + balanced * short, (1 - balanced) * short]
        others += [mass_q + balanced * short_q, (1 - balanced) * short_q]
        most = max(most, i - first)
    return np.array(places, dtype=np.int64), np.array(masses), np.array(others), most
