"""The padding row of an embedding, in models that keep gradients by example."""

import copy

import pytest
import torch
from opacus.layers import DPGRU, DPLSTM
from tests.misuse.setting import CLASSES, CLIP, Private
from tests.training.clipping.helpers import by_loop, squares
from torch import Tensor, nn
from torch.utils.data import TensorDataset


class Reader(nn.Module):
    """Recurrent, on words of which number 0 is padding."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 4, padding_idx=0)
        self.rnn, self.head = kind(4, 4, batch_first=True), nn.Linear(4, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.words(ids))[0].mean(dim=1))


@pytest.mark.parametrize("mode", ["hooks", "exact"])
@pytest.mark.parametrize("kind", [DPLSTM, DPGRU])
def test_the_padding_row_of_an_embedding_does_not_learn(mode: str, kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    ids = torch.randint(1, 12, (10, 6))
    ids[::2, 3:] = 0
    y = torch.arange(10) % CLASSES
    module = Reader(kind)
    run = Private(mode, copy.deepcopy(module), examples=TensorDataset(ids, y))
    found = run.released(ids, y, loss=lambda o, y: squares(o).mean())
    expected = torch.cat([g.flatten() for g in by_loop(module, ids, CLIP)])
    assert float((found - expected).norm()) < 0.02 * CLIP  # noise of a ten-thousandth of the clip, in 300 coordinates
