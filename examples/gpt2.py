"""A causal language model of GPT-2's form: every example's loss is the mean over its own tokens.

A tiny random GPT-2 and made-up sequences stand in for a pretrained one and a corpus.
"""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

import plrvo

DELTA = 1e-4
WORDS, LENGTH = 50, 12


def data() -> Dataset:
    """Sequences that count upwards from somewhere."""
    first = torch.randint(0, WORDS, (160, 1), generator=torch.Generator().manual_seed(0))
    return TensorDataset((first + torch.arange(LENGTH)) % WORDS)


def network() -> nn.Module:
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).train()


def loss_of(model: nn.Module, batch: tuple[torch.Tensor]) -> torch.Tensor:
    (ids,) = batch
    logits = model(input_ids=ids).logits
    by_token = nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    return by_token.mean(dim=1).mean()  # within each example first; all have one length


def main(epochs: int = 3) -> None:
    model = network()
    engine = plrvo.PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        data_loader=DataLoader(data(), batch_size=32),
        target_epsilon=8.0,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=1.0,
    )
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: epsilon {math.ceil(100 * engine.get_epsilon(DELTA)) / 100}")


if __name__ == "__main__":
    main()
