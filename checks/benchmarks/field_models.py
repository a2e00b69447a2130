"""Twelve models as users bring them, with a batch each: a step of them takes 20 to 500 ms on one core.

Weights are random and so is the data: time does not depend on their values. What a contender needs in another form (a
recurrent layer of Opacus's own) stands beside the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from plrvo.tasks.vision.models import build_model

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Model:
    """`make` gives the module; `for_opacus`, where Opacus has layers of its own for it, the same with those."""

    title: str
    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    for_opacus: Callable[[], nn.Module] | None = None


class WideBlock(nn.Module):
    """Norm, activation and convolution, twice, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(16, inputs), nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2, self.conv2 = nn.GroupNorm(16, outputs), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(x))
        return self.conv2(functional.relu(self.norm2(self.conv1(y)))) + self.shortcut(y)


def wide_resnet() -> nn.Module:
    """WideResNet-16-4 with GroupNorm: three groups of two blocks."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    inputs = 16
    for width, stride in ((64, 1), (128, 2), (256, 2)):
        blocks += [WideBlock(inputs, width, stride), WideBlock(width, width, 1)]
        inputs = width
    return nn.Sequential(
        *blocks, nn.GroupNorm(16, 256), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)
    )


class ConvNextBlock(nn.Module):
    """A depthwise convolution of 7 x 7, LayerNorm and two linear layers over channels, and a scale for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wider, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.back(functional.gelu(self.wider(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 2, stride=2), ConvNextBlock(64), ConvNextBlock(64)),
        *(nn.GroupNorm(1, 64), nn.Conv2d(64, 128, 2, stride=2), ConvNextBlock(128), ConvNextBlock(128)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(128), nn.Linear(128, 10)),
    )


class Attention(nn.Module):
    """Self-attention by linear layers, which Opacus takes as well."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.all(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class ViTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.wider, self.back = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.back(functional.gelu(self.wider(self.norm2(x))))


class ViT(nn.Module):
    """Patches of 4 x 4, with a first token and positions that are parameters."""

    def __init__(self, width: int = 192, depth: int = 4, heads: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        self.blocks = nn.Sequential(*(ViTBlock(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], dim=1) + self.positions
        return self.head(self.norm(self.blocks(tokens))[:, 0])


def mlp() -> nn.Module:
    layers = [nn.Linear(784, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(800, 10))


class Sequences(nn.Module):
    """Words to a recurrent layer, whose last output is classified."""

    def __init__(self, recurrent: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, 128)
        self.recurrent = recurrent(128, 128, batch_first=True)
        self.head = nn.Linear(128, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.recurrent(self.words(tokens))[0][:, -1])


def _dp_lstm() -> nn.Module:
    from opacus.layers import DPLSTM

    return Sequences(DPLSTM)


class EncoderBlock(nn.Module):
    """One block of BERT's size (768 wide), and a classifier on the mean of its positions."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertEncoder

        self.encoder = BertEncoder(BertConfig(num_hidden_layers=1, attn_implementation="sdpa"))
        self.head = nn.Linear(768, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).last_hidden_state.mean(dim=1))


class Decoder(nn.Module):
    """A small GPT-2 whose output layer is its table of words; logits with the words second, as the loss takes them."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.gpt = GPT2LMHeadModel(GPT2Config(vocab_size=8192, n_positions=64, n_embd=256, n_layer=4, n_head=4))

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1]).expand_as(tokens).contiguous()  # for every example, as Opacus needs it
        return self.gpt(input_ids=tokens, position_ids=places, use_cache=False).logits.transpose(1, 2)


def lora() -> nn.Module:
    """The same, frozen, with trained matrices of rank 8 beside its attention's."""
    from peft import LoraConfig, get_peft_model

    decoder = Decoder()
    decoder.gpt = get_peft_model(decoder.gpt, LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True))
    return decoder


class Recommender(nn.Module):
    """Users, and bags of what they have seen, to a small network; `flat`: bags one after the other, as Opacus wants."""

    def __init__(self, flat: bool = False) -> None:
        super().__init__()
        self.flat = flat
        self.seen = nn.EmbeddingBag(4000, 32, mode="mean")
        self.users = nn.Embedding(2000, 32)
        self.layers = nn.Sequential(
            *(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5)),
        )

    def forward(self, numbers: Tensor) -> Tensor:
        seen, users = numbers[:, 1:], numbers[:, 0]
        starts = torch.arange(0, seen.numel(), seen.shape[1])
        bags = self.seen(seen.flatten(), starts) if self.flat else self.seen(seen)
        return self.layers(torch.cat([bags, self.users(users)], dim=1))


def _images(batch: int, *shape: int) -> Callable[[torch.Generator], Batch]:
    def drawn(generator: torch.Generator) -> Batch:
        return torch.randn(batch, *shape, generator=generator), torch.randint(0, 10, (batch,), generator=generator)

    return drawn


def _numbers(batch: int, length: int, most: int, classes: int) -> Callable[[torch.Generator], Batch]:
    def drawn(generator: torch.Generator) -> Batch:
        numbers = torch.randint(0, most, (batch, length), generator=generator)
        return numbers, torch.randint(0, classes, (batch,), generator=generator)

    return drawn


def _texts(generator: torch.Generator) -> Batch:
    tokens = torch.randint(0, 8192, (8, 65), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _positions(generator: torch.Generator) -> Batch:
    return torch.randn(8, 64, 768, generator=generator), torch.randint(0, 2, (8,), generator=generator)


def _features(generator: torch.Generator) -> Batch:
    return torch.randn(4096, 1280, generator=generator), torch.randint(0, 100, (4096,), generator=generator)


def _of_task(name: str, *shape: int) -> Callable[[], nn.Module]:
    return lambda: build_model(name, shape, 10, torch.Generator().manual_seed(0))  # type: ignore[arg-type]


MODELS = {
    "cnn": Model("CNN of the paper's tables", _of_task("cnn", 1, 28, 28), _images(400, 1, 28, 28)),
    "resnet18": Model("ResNet-18, GroupNorm", _of_task("resnet18", 3, 32, 32), _images(8, 3, 32, 32)),
    "wide-resnet": Model("WideResNet-16-4, GroupNorm", wide_resnet, _images(12, 3, 32, 32)),
    "convnext": Model("ConvNeXt-like, depthwise 7 x 7", convnext, _images(32, 3, 32, 32)),
    "vit": Model("ViT with parameters of its own", ViT, _images(32, 3, 32, 32)),
    "mlp": Model("MLP of 1.3M parameters", mlp, _images(256, 784)),
    "lstm": Model("LSTM classifier", lambda: Sequences(nn.LSTM), _numbers(64, 64, 5000, 2), _dp_lstm),
    "bert": Model("Encoder block of BERT's size", EncoderBlock, _positions),
    "gpt2": Model("GPT-2-style decoder, tied words", Decoder, _texts),
    "lora": Model("LoRA on that decoder", lora, _texts),
    "efficientnet": Model(
        "Head on EfficientNet features", lambda: nn.Sequential(nn.Flatten(), nn.Linear(1280, 100)), _features
    ),
    "recommender": Model(
        "Recommender with EmbeddingBag", Recommender, _numbers(512, 33, 2000, 5), lambda: Recommender(True)
    ),
}


def parameters_of(module: nn.Module) -> int:
    return sum(math.prod(p.shape) for p in module.parameters() if p.requires_grad)
