import math

import pytest
import torch
from opacus import GradSampleModule
from opacus.validators import ModuleValidator
from torch import nn

from plrvo.tasks.vision.catalog import Scaling
from plrvo.tasks.vision.models import build_model
from plrvo.tasks.vision.vit import ImageTransformer
from plrvo.tasks.vision.words import NAMES
from plrvo.validate import InvalidArgument

transformers = pytest.importorskip("transformers")

GREY, COLOUR, DIGITS, FEATURES = (1, 28, 28), (3, 32, 32), (1, 8, 8), (1280, 1, 1)
CASES = [
    ("cnn", GREY),
    ("cnn", COLOUR),
    ("cnn", DIGITS),
    ("cnn-tanh", GREY),
    ("cnn-norm", GREY),
    ("logistic", GREY),
    ("resnet18", COLOUR),
    ("resnet18", DIGITS),
    ("efficientnet-lite0-head", FEATURES),
    ("scattering-cnn", (81, 7, 7)),
    ("vit", COLOUR),
    ("vit", GREY),
]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> str:
    """A ViT of 8,000 parameters in a folder, with seven classes."""
    folder = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        num_labels=7,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.ViTForImageClassification(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{'x'.join(map(str, case[1]))}")
def case(request, checkpoint) -> tuple[str, tuple[int, int, int]]:
    name, shape = request.param
    return (f"vit:{checkpoint}" if name == "vit" else name), shape


def build(name: str, shape: tuple[int, int, int], seed: int = 0, classes: int = 10) -> nn.Module:
    return build_model(name, shape, classes, torch.Generator().manual_seed(seed))


def images(shape: tuple[int, int, int], count: int) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("cnn", GREY, 10, 26_010),
        ("cnn-tanh", GREY, 10, 26_010),
        ("cnn-norm", DIGITS, 10, 2_730),
        ("cnn", DIGITS, 10, 9_258),
        ("logistic", GREY, 10, 7_850),
        ("logistic", GREY, 2, 1_570),
        ("resnet18", COLOUR, 10, 11_173_962),
        ("efficientnet-lite0-head", FEATURES, 10, 12_810),
        ("scattering", (81, 7, 7), 10, 39_700),
        ("scattering", (243, 8, 8), 10, 155_530),
        ("scattering-cnn", (243, 8, 8), 10, 187_210),
    ],
)
def test_parameter_counts(name, shape, classes, parameters):
    assert sum(p.numel() for p in build(name, shape, classes=classes).parameters()) == parameters


def test_weights_depend_on_the_generator_alone(case):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build(*case).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    second, other = build(*case).state_dict(), build(*case, seed=1).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_a_generator_gives_another_model_at_each_call():
    generator = torch.Generator().manual_seed(0)
    first, second = (build_model("logistic", DIGITS, 10, generator) for _ in range(2))
    assert not torch.equal(first[1].weight, second[1].weight)


def test_opacus_finds_no_error(case):
    model = build(*case)
    assert model.training
    assert ModuleValidator.validate(model, strict=False) == []


def test_no_example_changes_the_logits_of_another(case):
    model, x = build(*case), images(case[1], 3)
    changed = x.clone()
    changed[1] = 100 * torch.randn(case[1], generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        before, after = model(x), model(changed)
    assert before.shape == (3, 10)
    assert torch.allclose(before[[0, 2]], after[[0, 2]], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(before[1], after[1], rtol=1e-3)


def test_per_example_gradients_of_opacus_equal_a_loop_over_examples(case):
    model, x, y = build(*case), images(case[1], 2), torch.tensor([3, 7])
    loop = []
    for i in range(2):
        loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        loop.append(torch.autograd.grad(loss, list(model.parameters())))
    wrapped = GradSampleModule(model, loss_reduction="sum")
    nn.functional.cross_entropy(wrapped(x), y, reduction="sum").backward()
    for i in range(2):
        size = math.sqrt(sum(float(g.square().sum()) for g in loop[i]))
        for parameter, gradient in zip(wrapped.parameters(), loop[i], strict=True):
            assert (parameter.grad_sample[i] - gradient).abs().max() < 1e-5 * size


def test_tanh_is_the_only_difference_of_the_tanh_network():
    relu, tanh = build("cnn", GREY), build("cnn-tanh", GREY)
    assert sum(isinstance(m, nn.ReLU) for m in relu.modules()) == 3
    assert sum(isinstance(m, nn.Tanh) for m in tanh.modules()) == 3
    assert all(torch.equal(a, b) for a, b in zip(relu.parameters(), tanh.parameters(), strict=True))


@pytest.mark.parametrize("name", ["", "vgg", "vit:", "cnn:small", "CNN"])
def test_an_unknown_model_lists_the_known_ones(name):
    with pytest.raises(
        InvalidArgument, match="cnn, cnn-tanh, cnn-norm, logistic, resnet18, vit, efficientnet-lite0-head, scattering"
    ):
        build(name, GREY)
    assert len(NAMES) == 9


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("cnn", (1, 3, 3)),
        ("cnn", (0, 8, 8)),
        ("efficientnet-lite0-head", COLOUR),
        ("scattering", GREY),
        ("scattering-cnn", GREY),
    ],
)
def test_a_shape_that_a_model_cannot_take_is_refused(name, shape):
    with pytest.raises(InvalidArgument):
        build(name, shape)


def test_a_vit_keeps_the_checkpoint_and_gets_a_new_head(checkpoint):
    model = build(f"vit:{checkpoint}", COLOUR, classes=4)
    stored = transformers.ViTForImageClassification.from_pretrained(checkpoint)
    assert model.transformer.classifier.out_features == 4
    assert torch.equal(model.transformer.vit.embeddings.cls_token, stored.vit.embeddings.cls_token)


def test_a_vit_sees_pixels_in_its_own_scaling():
    class Seen(nn.Module):
        config = transformers.ViTConfig(image_size=4, num_channels=3)

        def forward(self, pixel_values: torch.Tensor) -> object:
            self.pixels = pixel_values
            return transformers.modeling_outputs.ImageClassifierOutput(logits=pixel_values.sum((1, 2, 3)))

    seen = Seen()
    pixel = 0.75
    ImageTransformer(seen, Scaling((0.1307,), (0.3081,)))(torch.full((2, 1, 28, 28), (pixel - 0.1307) / 0.3081))
    assert seen.pixels.shape == (2, 3, 4, 4)
    assert torch.allclose(seen.pixels, torch.tensor(0.5))


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match=r"model='vit:.*expected the hub name or the folder"):
        build(f"vit:{tmp_path}", COLOUR)


def test_pickled_weights_are_refused(checkpoint, tmp_path):
    stored = transformers.ViTForImageClassification.from_pretrained(checkpoint)
    stored.config.save_pretrained(tmp_path)
    torch.save(stored.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InvalidArgument, match="safetensors"):
        build(f"vit:{tmp_path}", COLOUR)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=8
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(InvalidArgument, match="ViT checkpoint"):
        build(f"vit:{tmp_path}", COLOUR)
