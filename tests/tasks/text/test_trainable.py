"""Clipped sums of transformers equal a loop over examples, whatever is trained and in every mode."""

import pytest
import torch
from tests.tasks.text.tiny import batch, bert
from tests.training.helpers import given, seeded
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.tasks.text.words import TRAINABLE
from plrvo.tasks.transformer import LogitsLoss, keep_examples_apart, logits_of, without_dropout
from plrvo.training import PrivacyEngine
from plrvo.training.loop import forward
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument

MODES = ("bookkeeping", "hooks", "ghost")
CLIP = 2.0


class Whole(torch.utils.data.Dataset):
    """One batch; examples are its rows."""

    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, indices):
        return {name: value[indices] for name, value in self.inputs.items()}, self.labels[indices]


def private(model, inputs, labels, mode, noise=1e-9, steps=100):
    """(model, optimizer, loss): almost no noise, so that what is released is the clipped sum."""
    work = plrvo.Workload(sample_rate=0.5, steps=steps, clip=CLIP, dimension=trained_parameters(model))
    engine = PrivacyEngine(plrvo.Plan.certify(plrvo.Gaussian(noise), work, 1e-5))
    trained = [p for p in model.parameters() if p.requires_grad]
    wrapped, optimizer, *criterion, _ = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(trained, lr=0.1),
        data_loader=DataLoader(Whole(inputs, labels), collate_fn=lambda whole: whole),
        criterion=LogitsLoss(),
        grad_sample_mode=mode,
        expected_batch_size=1,
        noise_generator=seeded(1),
        sample_generator=seeded(2),
    )
    return wrapped, optimizer, criterion[0] if criterion else LogitsLoss()


def released(wrapped, optimizer, loss, inputs, labels):
    optimizer.zero_grad()
    given(optimizer, len(labels))
    loss(forward(wrapped, inputs), labels).backward()
    assert optimizer.pre_step()
    return torch.cat([p.grad.flatten() for p in optimizer.params])


def looped(model, inputs, labels):
    """The sum of each example's own gradient, clipped; and how many were clipped."""
    trained = [p for p in model.parameters() if p.requires_grad]
    total, clipped = torch.zeros(trained_parameters(model)), 0
    for i in range(len(labels)):
        keep = int(inputs["attention_mask"][i].sum())  # without padding: it must not matter
        one = {name: value[i : i + 1, :keep] for name, value in inputs.items()}
        loss = nn.functional.cross_entropy(logits_of(model(**one)), labels[i : i + 1])
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, trained)])
        clipped += int(gradient.norm() > CLIP)
        total += gradient * min(1.0, CLIP / float(gradient.norm()))
    return total, clipped


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pooling", ["its own", "mean"])
@pytest.mark.parametrize("trainable", TRAINABLE)
def test_clipped_sums_equal_a_loop_over_examples(trainable, pooling, mode):
    model = bert(trainable, pooling)
    inputs, labels = batch()
    expected, clipped = looped(model, inputs, labels)
    assert clipped > 0, "the test must clip"
    wrapped, optimizer, loss = private(model, inputs, labels, mode)
    torch.testing.assert_close(released(wrapped, optimizer, loss, inputs, labels), expected, rtol=1e-4, atol=1e-5)


def others():
    from transformers import (
        DistilBertConfig,
        DistilBertForSequenceClassification,
        ElectraConfig,
        ElectraForSequenceClassification,
        RobertaConfig,
        RobertaForSequenceClassification,
    )

    sizes = {"vocab_size": 20, "num_labels": 3, "max_position_embeddings": 30, "initializer_range": 0.4}
    layers = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    distilled = DistilBertConfig(**sizes, dim=16, n_layers=1, n_heads=2, hidden_dim=8)
    electra = ElectraConfig(**sizes, **layers, embedding_size=8)
    return {
        "roberta": RobertaForSequenceClassification(without_dropout(RobertaConfig(**sizes, **layers))),
        "distilbert": DistilBertForSequenceClassification(without_dropout(distilled)),
        "electra": ElectraForSequenceClassification(without_dropout(electra)),
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["roberta", "distilbert", "electra"])
def test_other_architectures_equal_the_loop(name, mode):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = others()[name].train()
    keep_examples_apart(model)
    inputs, labels = batch()
    inputs.pop("token_type_ids")
    if name == "roberta":  # whose padding is token 1, from which it counts positions
        inputs["input_ids"] = inputs["input_ids"] + (1 - inputs["attention_mask"])
    expected, clipped = looped(model, inputs, labels)
    assert clipped > 0
    wrapped, optimizer, loss = private(model, inputs, labels, mode)
    torch.testing.assert_close(released(wrapped, optimizer, loss, inputs, labels), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_token_types_that_are_left_out_are_per_example_as_well(mode):
    model = bert("all")
    inputs, labels = batch()
    inputs.pop("token_type_ids")
    expected, _ = looped(model, inputs, labels)
    wrapped, optimizer, loss = private(model, inputs, labels, mode)
    torch.testing.assert_close(released(wrapped, optimizer, loss, inputs, labels), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trainable", TRAINABLE)
def test_an_empty_batch_releases_noise_alone(trainable, mode):
    model = bert(trainable)
    inputs, labels = batch()
    none = {name: value[:0] for name, value in inputs.items()}
    expected, _ = looped(model, inputs, labels)
    wrapped, optimizer, loss = private(model, inputs, labels, mode)
    assert released(wrapped, optimizer, loss, none, labels[:0]).abs().max() < 1e-7
    # and the next batch is as it should be
    torch.testing.assert_close(released(wrapped, optimizer, loss, inputs, labels), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_in_parts_is_the_whole_batch(mode):
    model = bert("all")
    inputs, labels = batch()
    expected, _ = looped(model, inputs, labels)
    wrapped, optimizer, loss = private(model, inputs, labels, mode)
    given(optimizer, 6)
    for rows, more in ((slice(0, 2), True), (slice(2, 6), False)):
        optimizer.signal_skip_step(do_skip=more)
        optimizer.zero_grad()
        part = {name: value[rows] for name, value in inputs.items()}
        loss(forward(wrapped, part), labels[rows]).backward()
        assert optimizer.pre_step() is not more
    got = torch.cat([p.grad.flatten() for p in optimizer.params])
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_the_hooks_change_nothing_that_the_model_computes():
    inputs, _ = batch()
    torch.testing.assert_close(bert("all")(**inputs).logits, bert("head")(**inputs).logits)


class Relative(nn.Module):
    """Looks up a distance for each pair of positions, once for all examples."""

    def __init__(self):
        super().__init__()
        self.words, self.distances = nn.Embedding(9, 4), nn.Embedding(9, 4)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1])
        distances = self.distances((positions[:, None] - positions).abs())
        return (self.words(input_ids)[:, :, None] + distances).sum(dim=(1, 2))


def test_an_embedding_that_is_not_looked_up_by_example_is_refused_unless_frozen():
    model = Relative()
    keep_examples_apart(model)
    with pytest.raises(InvalidArgument, match="distances"):
        model(input_ids=torch.ones(2, 5, dtype=torch.long))
    model.distances.weight.requires_grad_(False)
    assert model(input_ids=torch.ones(2, 5, dtype=torch.long)).shape == (2, 4)
