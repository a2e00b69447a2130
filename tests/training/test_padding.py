"""Padding to the longest of a batch is fine where the model masks it, and refused where it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from opacus.layers import DPLSTM
from tests.misuse.setting import Private
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import TensorDataset

from plrvo.training.call import Call
from plrvo.training.layout import Layout
from plrvo.training.loss_form import NotASum
from plrvo.training.padding import Padding
from plrvo.training.recording import Output
from plrvo.validate import InvalidArgument

WIDTH, CLASSES, WORDS = 8, 3, 20


def sentences(longest: int, count: int = 12, seed: int = 0) -> list[Tensor]:
    """Lengths from 3 to `longest`, which occurs; the numbers are words, none of them 0."""
    generator = torch.Generator().manual_seed(seed + longest)
    lengths = [longest, *torch.randint(3, longest + 1, (count - 1,), generator=generator).tolist()]
    return [torch.randint(1, WORDS, (n,), generator=generator) for n in lengths]


def padded(longest: int, *, width: int | None = None, left: bool = False) -> Tensor:
    """Padded by 0 to the longest of them, or to `width`."""
    ids = pad_sequence(sentences(longest), batch_first=True, padding_side="left" if left else "right")
    return nn.functional.pad(ids, (0, (width or longest) - longest))


class Mean(nn.Module):
    """The mean over all positions, or over those that are no padding."""

    def __init__(self, masks: bool) -> None:
        super().__init__()
        self.masks = masks
        self.words, self.drop, self.head = nn.Embedding(WORDS, WIDTH), nn.Dropout(0.1), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        mask = (ids != 0 if self.masks else torch.ones_like(ids)).unsqueeze(2).float()
        return self.head((self.drop(self.words(ids)) * mask).sum(dim=1) / mask.sum(dim=1))


class Attention(nn.Module):
    """One head; padding is no key, and is not in the mean."""

    def __init__(self, masks: bool, positions: bool = True) -> None:
        super().__init__()
        self.masks = masks
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(32, WIDTH) if positions else None
        self.query, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        mask = mask if self.masks else torch.ones_like(mask)
        x = self.words(ids)
        if self.places:
            x = x + self.places(torch.arange(ids.shape[1]).expand_as(ids))
        x = nn.functional.scaled_dot_product_attention(self.query(x), x, x, attn_mask=mask[:, None, :])
        return self.head((x * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))


class Recurrent(nn.Module):
    """Read at its end: that of the sentence, or that of the padded row."""

    def __init__(self, masks: bool) -> None:
        super().__init__()
        self.masks = masks
        self.words, self.rnn = nn.Embedding(WORDS, WIDTH), DPLSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.rnn(self.words(ids))
        ends = (ids != 0).sum(dim=1) - 1 if self.masks else torch.full((len(ids),), ids.shape[1] - 1)
        return self.head(states[torch.arange(len(ids)), ends])


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.conv = nn.Embedding(WORDS, WIDTH), nn.Conv1d(WIDTH, WIDTH, 3)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.conv(self.words(ids).transpose(1, 2)).relu().mean(dim=2))


class Signals(nn.Module):
    """On (example, time, feature)."""

    def __init__(self, masks: bool) -> None:
        super().__init__()
        self.masks, self.one, self.head = masks, nn.Linear(2, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        mask = (x != 0).any(dim=2, keepdim=True) if self.masks else torch.ones_like(x[:, :, :1])
        return self.head((self.one(x).tanh() * mask).sum(dim=1) / mask.sum(dim=1))


def train(module: nn.Module, mode: str, batches: list[Any], forward: Any = None) -> None:
    """One step on each of these batches."""
    torch.manual_seed(1)
    y = torch.randint(0, CLASSES, (12,))
    first = batches[0][0] if isinstance(batches[0], tuple) else batches[0]
    run = Private(mode, module, examples=TensorDataset(first, y))
    for batch in batches:
        inputs = batch if isinstance(batch, tuple) else (batch,)
        run.released(inputs[0], y, forward=lambda _, inputs=inputs: (forward or _plain)(run.module, *inputs))


def _plain(module: Any, *inputs: Any) -> Tensor:
    return module(*inputs)


def with_masks(*batches: Tensor) -> list[Any]:
    return [(ids, ids != 0) for ids in batches]


def signals(longest: int) -> Tensor:
    x = torch.randn(12, longest, 2, generator=torch.Generator().manual_seed(longest))
    return x * (padded(longest) != 0)[:, :, None]


LENGTHS = (9, 14, 7, 11)
BATCHES = [padded(n) for n in LENGTHS]


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks", "exact"])
@pytest.mark.parametrize(
    ("module", "batches"),
    [
        (lambda: Mean(False), BATCHES),
        (lambda: Attention(False), with_masks(*BATCHES)),
        (Convolution, BATCHES),
        (lambda: Signals(False), [signals(n) for n in LENGTHS]),
        # Positions are counted from the padding on.
        (lambda: Attention(True), with_masks(*(padded(n, left=True) for n in LENGTHS))),
    ],
    ids=["mean", "attention", "convolution", "signals", "positions after padding"],
)
def test_models_that_see_padding_are_refused(mode: str, module: Any, batches: list[Any]) -> None:
    torch.manual_seed(0)
    with pytest.raises(InvalidArgument, match=r"padded to the longest.*mask the padding"):
        train(module(), mode, batches)


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks", "exact"])
@pytest.mark.parametrize(
    ("module", "batches"),
    [
        (lambda: Mean(True), BATCHES),
        (lambda: Attention(True), with_masks(*BATCHES)),
        (lambda: Attention(True, positions=False), with_masks(*(padded(n, left=True) for n in LENGTHS))),
        (lambda: Signals(True), [signals(n) for n in LENGTHS]),
        (lambda: Mean(False), [padded(n, width=16) for n in LENGTHS]),
        (Convolution, [padded(n, width=16) for n in LENGTHS]),
        # Without padding, batches of any length are as they are.
        (Convolution, [torch.randint(0, WORDS, (12, n)) for n in LENGTHS]),
        (lambda: Signals(False), [torch.randn(12, n, 2) for n in LENGTHS]),
    ],
    ids=["mean", "attention", "left", "signals", "one length", "one length, convolution", "no padding", "no zeros"],
)
def test_models_that_mask_and_batches_of_one_length_pass(mode: str, module: Any, batches: list[Any]) -> None:
    torch.manual_seed(0)
    train(module(), mode, batches)


@pytest.mark.parametrize("masks", [False, True])
def test_recurrent_networks_are_read_at_the_end_of_the_sentence(masks: bool) -> None:
    torch.manual_seed(0)
    if masks:
        train(Recurrent(True), "hooks", BATCHES)
        return
    with pytest.raises(InvalidArgument, match="mask the padding"):
        train(Recurrent(False), "hooks", BATCHES)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("own_loss", [False, True])
def test_transformers_are_given_the_mask(masks: bool, own_loss: bool) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config).train()
    for name, p in model.named_parameters():
        p.requires_grad_("embeddings" not in name)
    padding = Padding(lambda _: None)

    def check() -> None:
        for ids in BATCHES:
            named = {"input_ids": ids} | ({"attention_mask": (ids != 0).long()} if masks else {})
            named |= {"labels": torch.zeros(12, dtype=torch.long), "return_dict": True} if own_loss else {}
            padding.check(model, Call((), named, 12))

    if masks:
        check()
        return
    with pytest.raises(InvalidArgument, match="mask the padding"):
        check()


class Noisy(Mean):
    """Random in eval mode as well."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + torch.randn(len(ids), CLASSES)


def test_randomness_is_not_taken_for_padding_and_generators_are_left_alone() -> None:
    padding, before = Padding(lambda _: None), torch.get_rng_state()
    module = Noisy(True)
    torch.set_rng_state(before)
    for ids in BATCHES:
        padding.check(module, Call((ids,), {}, 12))
    assert torch.equal(torch.get_rng_state(), before)
    assert module.training
    assert module.drop.training


class Loss(Mean):
    """Returns nothing but a loss."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids).square().mean()


@pytest.mark.parametrize("masks", [False, True])
def test_a_loss_alone_tells_as_well(masks: bool) -> None:
    padding = Padding(lambda _: None)
    padding.check(Loss(masks), Call((BATCHES[0],), {}, 12))
    if masks:
        padding.check(Loss(masks), Call((BATCHES[1],), {}, 12))
        return
    with pytest.raises(InvalidArgument, match="mask the padding"):
        padding.check(Loss(masks), Call((BATCHES[1],), {}, 12))


def test_few_batches_are_tried() -> None:
    """Three, then one in 64: of 100 later batches, 20 or more would be tried with probability below 1e-15."""
    passes = []
    module = Mean(True)
    module.register_forward_hook(lambda *_: passes.append(1))
    padding = Padding(lambda _: None)
    for i in range(103):
        padding.check(module, Call((BATCHES[i % 4],), {}, 12))
    assert 0 < len(passes) <= 23 * 5


def test_padding_that_cannot_be_taken_off_is_tried_in_few_batches() -> None:
    """Inputs of which one is as long as the others together: eight, then one in 64 (of 100, 20 with below 1e-15)."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.words = Mean(True), nn.Embedding(WORDS, WIDTH)

        def forward(self, first: Tensor, second: Tensor, both: Tensor) -> Tensor:
            marked = self.words(torch.cat([first, second], dim=1)) * both.unsqueeze(2)
            return self.inner(first) + marked.sum(dim=1)[:, :CLASSES]

    passes = []
    module = Joined()
    module.register_forward_hook(lambda *_: passes.append(1))
    padding = Padding(lambda _: None)
    for i in range(108):
        first, second = BATCHES[i % 4], BATCHES[(i + 1) % 4]
        both = (torch.cat([first, second], dim=1) != 0).long()
        padding.check(module, Call((first, second, both), {}, 12))
        padding.check_loss(torch.zeros(()), [], 12, form=0)  # which would like to know it too
    assert 0 < len(passes) <= 28 * 2


class Strided(nn.Module):
    """An output for every eight positions, of the words among them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        ids = nn.functional.pad(ids, (0, -ids.shape[1] % 8))
        return self.head((self.words(ids) * (ids != 0)[:, :, None]).unflatten(1, (-1, 8)).sum(dim=2))


def test_one_long_text_after_many_short_ones_shows_what_a_loss_looks_at() -> None:
    """Of texts of 9 to 16 words all outputs are alike: batches that tell nothing must not count as if they did."""
    module, padding = Strided(), Padding(lambda _: None)

    def step(longest: int) -> None:
        ids = padded(longest)
        ids[:, :9] = ids[:, :9].clamp(min=1)  # nine words at least
        padding.check(module, Call((ids,), {}, 12))
        outputs = module(ids)
        given = Output(outputs, outputs.grad_fn, 0, False, Layout(0), False, 0, 0)
        padding.check_loss(outputs.sum(), [given], 12, form=0)  # over all positions
        padding.end()

    for i in range(40):
        step(14 + i % 3)
    with pytest.raises(NotASum, match="looks at no padding"):
        step(40)


class Translation(nn.Module):
    """Reads a text, and says one word after the other of another; each position of those sees what was said before."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.said, self.head = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, ids: Tensor, said: Tensor) -> Tensor:
        mask = (ids != 0)[:, :, None]
        read = (self.words(ids) * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)
        return self.head(read + self.said(said).cumsum(dim=1))


@pytest.mark.parametrize("looks", [False, True])
def test_texts_that_a_decoder_says_have_ends_of_their_own(looks: bool) -> None:
    """A decoder that is started by the token that pads (T5), beside texts that are padded to the same length."""
    module = Translation()
    run = Private("bookkeeping", module, examples=TensorDataset(BATCHES[0], BATCHES[0]))

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        each = nn.functional.cross_entropy(logits.transpose(1, 2), labels % 5, reduction="none")
        counts = torch.ones_like(each) if looks else (labels != 0).float()
        return ((each * counts).sum(dim=1) / (labels != 0).sum(dim=1)).mean()

    def train() -> None:
        for longest in LENGTHS:
            ids, labels = padded(longest), padded(longest).flip(0)
            said = nn.functional.pad(labels, (1, 0))[:, :-1]
            run.released(ids, labels, forward=lambda ids, said=said: run.module(ids, said), loss=loss)

    if looks:
        with pytest.raises(NotASum, match="looks at no padding"):
            train()
    else:
        train()


class Dynamic(Mean):
    """Masks padding; where the batch is long all rows are seen otherwise, as by rotary embeddings that grow."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * (1.0 if ids.shape[1] <= 20 else 3.0)


def test_a_batch_that_is_longer_than_all_before_is_always_tried() -> None:
    """With a chance of one in 64 it would be seen once in 64 runs; here it is seen in each of ten."""
    for _ in range(10):
        module, padding = Dynamic(True), Padding(lambda _: None)
        for i in range(12):
            padding.check(module, Call((BATCHES[i % 4],), {}, 12))
        with pytest.raises(InvalidArgument, match="do not change with its padding"):
            padding.check(module, Call((padded(24),), {}, 12))
