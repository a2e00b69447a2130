"""Attention made of linear layers, with the masks that `nn.MultiheadAttention` takes."""

from __future__ import annotations

from typing import Any

import torch
from opacus.layers import DPMultiheadAttention
from torch import Tensor, nn

_Base: Any = DPMultiheadAttention  # Opacus's classes have no types


class Attention(_Base):
    """Opacus's layer and its weights; Opacus's own pass refuses causal masks and masks of numbers."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """softmax(Q K' / sqrt(d) + masks) V, by head; `is_causal` stands for a mask that is not given."""

        def heads(layer: nn.Module, t: Tensor) -> Tensor:
            by_head: Tensor = layer(t).unflatten(-1, (self.num_heads, self.head_dim))
            return by_head.transpose(1, 2) if self.batch_first else by_head.permute(1, 2, 0, 3)

        q, k, v = heads(self.qlinear, query), heads(self.klinear, key), heads(self.vlinear, value)
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
        if attn_mask is None and is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        if attn_mask is not None:
            scores = scores + _added(attn_mask if attn_mask.ndim == 2 else attn_mask.view_as(scores), scores)
        if key_padding_mask is not None:
            scores = scores + _added(key_padding_mask[:, None, None], scores)
        weights = scores.softmax(dim=-1)
        output = (self.dropout(weights) @ v).transpose(1, 2).flatten(2)
        output = self.out_proj(output if self.batch_first else output.transpose(0, 1))
        if not need_weights:
            return output, None
        return output, weights.mean(dim=1) if average_attn_weights else weights


def with_masks(module: nn.Module) -> nn.Module:
    """The same module, with the attention of Opacus's in it replaced; extra keys and values are left to Opacus."""
    for m in module.modules():
        if type(m) is DPMultiheadAttention and not (m.add_bias_kv or m.add_zero_attn):
            m.__class__ = Attention
        if isinstance(m, nn.TransformerEncoder):  # whose nested tensors this attention does not take, in eval()
            m.enable_nested_tensor = m.use_nested_tensor = False
    return module


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Minus infinity where a mask of flags is true; a mask of numbers is one already."""
    if mask.is_floating_point():
        return mask.to(like)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask.bool(), float("-inf"))
