"""Gradients of the gates of a recurrent layer, from its inputs and outputs alone.

In step t a recurrent layer computes gates from W x_t + b and U h_{t-1} + c, with h_t its output. Whatever the gates are
for, the gradient of one example with respect to W is a sum of outer products over time, as that of a linear layer on
sequences: of the gates' gradients and the inputs x_t; that of U, of the gates' gradients and the outputs h_{t-1}. So
the gates' gradients are all that has to be known.

All outputs being known, all gates are computed at once, and with them the factors between gradients of one step and of
the one before. What is left to do step by step is one product with U each. Tensors are (steps, examples, values), in
the order in which the layer goes through time; `there` says in which steps an example has something. In the others its
state stays as it was: factors are then zero, or one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from plrvo.training.clipping.matrices import linear, often


@dataclass(frozen=True)
class Weights:
    """Of one layer in one direction."""

    inputs: Tensor
    states: Tensor
    input_bias: Tensor | None = None
    state_bias: Tensor | None = None
    projection: Tensor | None = None


@dataclass(frozen=True)
class Steps:
    """What a layer was given in one direction, and what came out."""

    inputs: Tensor
    outputs: Tensor
    first: tuple[Tensor, ...]  # the state before the first step: of an LSTM, outputs and cells
    there: Tensor | None = None  # (steps, examples, 1)

    @cached_property
    def before(self) -> Tensor:
        """The output of the step before."""
        earlier = self.outputs[:-1]
        if self.there is not None:
            earlier = torch.where(self.there[:-1], earlier, self.first[0])
        return torch.cat([self.first[0][None], earlier])


@dataclass(frozen=True)
class Gradients:
    """Factors of the weights' gradients, and the gradients of the state before the first step."""

    of_inputs: Tensor  # beside the inputs
    of_states: Tensor  # beside the outputs of the step before
    first: tuple[Tensor, ...]
    projected: tuple[Tensor, Tensor] | None = None  # both factors of the projection's gradient


def through_time(kind: str, weights: Weights, steps: Steps, outputs: Tensor, last: tuple[Tensor, ...]) -> Gradients:
    """From the gradients of the outputs and of the state after the last step; `kind` is torch's name of the mode."""
    before = steps.before
    if kind == "LSTM":
        return _lstm(weights, steps, before, outputs, last)
    slopes, stays = _gru(weights, steps, before) if kind == "GRU" else _plain(kind, steps)
    if steps.there is not None:
        slopes = slopes * steps.there[:, :, None]
        stays = torch.where(steps.there, stays, 1.0)
    gates, state, count = torch.empty_like(slopes), last[0], weights.states.shape[0] // weights.states.shape[1]
    for t in reversed(range(len(gates))):
        state = state + outputs[t]
        torch.mul(slopes[t], state[:, None], out=gates[t])
        state = torch.addmm(stays[t] * state, gates[t, :, :count].flatten(1), weights.states)
    of_inputs = gates if kind != "GRU" else gates[:, :, [0, 1, 3]]
    return Gradients(of_inputs.flatten(2), gates[:, :, :count].flatten(2), (state,))


def _plain(kind: str, steps: Steps) -> tuple[Tensor, Tensor]:
    """h = tanh(a) or relu(a), with a the one gate."""
    h = steps.outputs
    slopes = 1 - h.square() if kind == "RNN_TANH" else (h > 0).to(h.dtype)
    return slopes[:, :, None], h.new_zeros(()).expand_as(h)


def _gru(weights: Weights, steps: Steps, before: Tensor) -> tuple[Tensor, Tensor]:
    """h = (1 - z) n + z h', n = tanh(a + r b): gates r, z, b and, of the inputs alone, a."""
    driven = linear(steps.inputs, weights.inputs, weights.input_bias)
    echoed = linear(before, weights.states, weights.state_bias)
    size = before.shape[2]
    r, z = (driven[..., : 2 * size] + echoed[..., : 2 * size]).sigmoid().chunk(2, dim=2)
    b = echoed[..., 2 * size :]
    n = torch.tanh(driven[..., 2 * size :] + r * b)
    a = (1 - z) * (1 - n.square())
    return torch.stack([a * b * r * (1 - r), (before - n) * z * (1 - z), a * r, a], dim=2), z


def _lstm(weights: Weights, steps: Steps, before: Tensor, outputs: Tensor, last: tuple[Tensor, ...]) -> Gradients:
    """c = f c' + i g and h = o tanh(c), or a projection of that: gates i, f, g, o."""
    i, f, g, o = _activated(weights, steps.inputs, before)
    kept, new = f, i * g
    if steps.there is not None:
        kept, new = torch.where(steps.there, f, 1.0), new.mul_(steps.there)
    cells = torch.empty(len(f) + 1, *f.shape[1:], dtype=f.dtype, device=f.device)
    cells[0] = steps.first[1]
    for fresh, stays, cell, after in zip(*(v.unbind() for v in (new, kept, cells[:-1], cells[1:])), strict=True):
        torch.addcmul(fresh, stays, cell, out=after)
    shown = torch.tanh(cells[1:], out=new)
    slopes = torch.empty(*f.shape[:2], 4, f.shape[2], dtype=f.dtype, device=f.device)
    of_sigmoid, of_tanh = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input
    for k, (way, before_it, gate) in enumerate(
        ((of_sigmoid, g, i), (of_sigmoid, cells[:-1], f), (of_tanh, i, g), (of_sigmoid, shown, o))
    ):
        way(before_it, gate, grad_input=slopes[:, :, k])
    through = torch.ops.aten.tanh_backward(o, shown)
    if steps.there is not None:
        slopes.mul_(steps.there[:, :, None])
        through.mul_(steps.there)
    state, cell, states = last[0], last[1].clone(), []
    # Slopes become gradients in place. Views of all steps at once: one by one they take as long as the arithmetic.
    whole = slopes.flatten(2)
    views = (outputs, through, kept, whole, slopes[:, :, :3], slopes[:, :, 3])
    for t, (output, opened, stays, gates, three, fourth) in reversed(
        list(enumerate(zip(*(v.unbind() for v in views), strict=True)))
    ):
        state = state + output
        exposed = state
        if weights.projection is not None:
            states.append(state)
            exposed = state @ weights.projection
        cell.addcmul_(exposed, opened)
        three.mul_(cell[:, None])
        fourth.mul_(exposed)
        cell.mul_(stays)
        earlier = often(gates, weights.states)
        state = earlier if steps.there is None else torch.where(steps.there[t], earlier, state)
    projected = None
    if weights.projection is not None:
        seen = torch.stack(states[::-1])
        projected = seen if steps.there is None else seen.mul_(steps.there), o * shown
    return Gradients(whole, whole, (state, cell), projected)


def _activated(weights: Weights, inputs: Tensor, before: Tensor) -> tuple[Tensor, ...]:
    """The gates i, f, g, o of all steps, in one tensor: large ones cost the more the more of them there are."""
    bias = None
    if weights.input_bias is not None and weights.state_bias is not None:
        bias = weights.input_bias + weights.state_bias
    both, weight = torch.cat([inputs, before], dim=2), torch.cat([weights.inputs, weights.states], dim=1)
    i, f, g, o = linear(both, weight, bias).chunk(4, dim=2)
    return i.sigmoid_(), f.sigmoid_(), g.tanh_(), o.sigmoid_()
