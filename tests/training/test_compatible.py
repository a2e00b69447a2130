"""Which layers are refused by what they are."""

import pytest
from opacus.layers import DPMultiheadAttention
from torch import nn

from plrvo.training.compatible import compatible, mixing, refuse_mixing
from plrvo.validate import InvalidArgument


def test_a_layer_that_mixes_examples_is_named():
    with pytest.raises(InvalidArgument, match=r"1 \(BatchNorm1d\)") as refused:
        refuse_mixing(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    assert "\n" not in str(refused.value)


def test_recurrent_layers_and_frozen_ones_are_none_of_them():
    frozen = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    assert mixing(nn.Sequential(nn.LSTM(3, 4), nn.GRU(3, 4), nn.RNN(3, 4), frozen)) == []


def test_a_copy_has_replacements_and_the_rest_as_it_was():
    model = nn.Sequential(nn.MultiheadAttention(4, 2), nn.GRU(3, 4), nn.Linear(4, 4))
    found = compatible(model)
    assert isinstance(found[0], DPMultiheadAttention)
    assert [type(m) for m in found[1:]] == [nn.GRU, nn.Linear]
    assert isinstance(model[0], nn.MultiheadAttention)


def test_a_refusal_is_short_and_says_what_to_use_instead():
    layers = [layer for _ in range(5) for layer in (nn.Linear(3, 3), nn.BatchNorm1d(3))]
    with pytest.raises(InvalidArgument) as refused:
        refuse_mixing(nn.Sequential(*layers))
    told = str(refused.value)
    said = "1, 3, 5 and 2 more (BatchNorm1d): each normalises an example by the others of its batch: use GroupNorm"
    assert said in told
    assert told.count("normalises") == 1
    assert "model = PrivacyEngine.get_compatible_module(model)" in told
    assert len(told) < 450


def test_an_instance_norm_that_keeps_statistics_is_told_apart():
    assert mixing(nn.InstanceNorm1d(3, affine=True)) == []
    (line,) = mixing(nn.InstanceNorm1d(3, affine=True, track_running_stats=True))
    assert "track_running_stats=False" in line


def test_layers_of_two_kinds_are_told_one_kind_after_the_other():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 2, enable_nested_tensor=False)
    with pytest.raises(InvalidArgument) as refused:
        refuse_mixing(nn.Sequential(encoder, nn.BatchNorm1d(4)))
    told = refused.value.expected
    assert "0.layers.0.self_attn, 0.layers.1.self_attn (MultiheadAttention): each computes all examples" in told
    assert told.count("in one piece") == 1
    assert "; 1 (BatchNorm1d) normalises" in told


def test_attention_is_told_in_words_with_what_to_write():
    with pytest.raises(InvalidArgument) as refused:
        refuse_mixing(nn.TransformerEncoderLayer(4, 2))
    assert "self_attn (MultiheadAttention) computes all examples in one piece" in refused.value.expected
    assert "model = PrivacyEngine.get_compatible_module(model)" in refused.value.expected
