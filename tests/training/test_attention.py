"""Attention of linear layers computes what torch's does, masks included, and trains."""

import pytest
import torch
from tests.misuse.setting import Private
from torch import nn
from torch.utils.data import TensorDataset

from plrvo.training import PrivacyEngine
from plrvo.validate import InvalidArgument

# Torch's own, where the padding is of flags and the other mask of numbers.
pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched")
V, T = 9, 6
CAUSAL = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
FLOATS = torch.zeros(T, T).masked_fill(CAUSAL, float("-inf"))
IDS = torch.randint(1, V, (20, T), generator=torch.Generator().manual_seed(1))
IDS[::3, 4:] = 0


class Encoder(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.embedding, self.batch_first = nn.Embedding(V, 8), batch_first
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x, mask=None):
        h = self.embedding(x)
        h = self.encoder(h if self.batch_first else h.transpose(0, 1), mask=mask, src_key_padding_mask=x == 0)
        h = h if self.batch_first else h.transpose(0, 1)
        return self.head((h * (x != 0)[..., None]).sum(1))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", [None, CAUSAL, FLOATS], ids=["none", "flags", "numbers"])
def test_a_compatible_encoder_computes_what_it_did(mask, batch_first):
    module = Encoder(batch_first)
    fixed = PrivacyEngine.get_compatible_module(module)
    torch.testing.assert_close(fixed(IDS, mask), module(IDS, mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [CAUSAL, FLOATS], ids=["flags", "numbers"])
def test_it_trains_with_padding_and_a_causal_mask(mask):
    module = PrivacyEngine.get_compatible_module(Encoder())
    run = Private("bookkeeping", module, examples=TensorDataset(IDS, IDS[:, 0] % 3), sample_rate=0.9, steps=2)
    run.train(forward=lambda x: run.module(x, mask))
    assert run.optimizer.steps_taken == 2


def test_sequences_that_a_layer_sorts_are_refused_with_what_to_write():
    from opacus.layers import DPLSTM

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.lstm, self.head = nn.Embedding(V, 4), DPLSTM(4, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            lengths = (x != 0).sum(1)
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embedding(x), lengths, batch_first=True, enforce_sorted=False
            )
            return self.head(self.lstm(packed)[1][0][-1])

    run = Private("hooks", Packed(), examples=TensorDataset(IDS, IDS[:, 0] % 3), steps=2)
    with pytest.raises(InvalidArgument, match="where each example ends"):
        run.train()
