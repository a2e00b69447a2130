"""Clipping with one backward pass, by keeping books instead of per-example gradients.

A layer's weight gradient for one example is a sum of outer products, one for each position (token, pixel) of the
example: G = sum_t l_t r_t', with l_t and r_t its output gradient and its input. The backward pass records both and
computes no weight gradient. Then

    norm:  ||G||^2 = sum_{s,t} <l_s, l_t> <r_s, r_t>     (without forming G: the *ghost* form)
    sum:   sum_b f_b G_b = sum_b sum_t (f_b l_bt) r_bt'  (one matrix product for all examples)

where f_b is example b's clipping factor, known once every layer's norms are. Where G is about as small as these (a
convolution with many pixels and few channels), G itself is computed at once and its factors are let go: the *direct*
form. Either way a weight gradient is computed once, as without privacy. The idea is book-keeping of Bu et al. (2022),
"Differentially private optimization on large model at small cost"; ghost norms are from Li et al. (2021).

- `contributions`: the forms that a parameter's per-example gradients take, their norms and weighted sums;
- `bags`: the form of embeddings that are added up by bag;
- `convolution`: the ghost form of convolutions;
- `products`: their arithmetic, and what rounding can hide of it; `matrices`: by which library it is done;
- `layers`: which contributions each kind of layer makes;
- `module`: the wrapper that records them during the backward pass;
- `samples`: the other wrappers, per-example gradients for layers without a rule, and of a module as a whole;
- `mode`: which of the wrappers a module is given;
- `optimizer`: clips and sums either.
"""

from plrvo.records.choices import check_clip
from plrvo.training.clipping.module import BookkeepingModule, unsupported_layers
from plrvo.training.clipping.optimizer import BookkeepingMixin, SamplesMixin, shares_of
from plrvo.training.clipping.samples import SamplesModule

__all__ = [
    "BookkeepingMixin",
    "BookkeepingModule",
    "SamplesMixin",
    "SamplesModule",
    "check_clip",
    "shares_of",
    "unsupported_layers",
]
