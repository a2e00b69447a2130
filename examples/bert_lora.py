"""A BERT that is fine-tuned with LoRA: few parameters learn, so few coordinates need noise.

A tiny random BERT and made-up sentences stand in for a pretrained one and a data set.
"""

import math

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification

from plrvo import PrivacyEngine

DELTA = 1e-4
WORDS, LENGTH = 60, 12


class Sentences(Dataset):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(1, WORDS, (160, LENGTH), generator=generator)
        self.labels = (self.ids < 30).sum(dim=1).gt(LENGTH // 2).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {
            "input_ids": self.ids[index],
            "attention_mask": (self.ids[index] > 0).long(),
            "labels": self.labels[index],
        }


def data() -> Dataset:
    return Sentences()


def network() -> nn.Module:
    config = BertConfig(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2,
    )  # fmt: skip
    adapted = get_peft_model(
        BertForSequenceClassification(config),
        LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8, target_modules=["query", "value"], lora_dropout=0.0),
    )
    return adapted.train()


def loss_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return nn.functional.cross_entropy(logits, batch["labels"])


def main(epochs: int = 3) -> None:
    model = network()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(data(), batch_size=32, shuffle=True),
        target_epsilon=8.0,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=0.5,
    )
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: epsilon {math.ceil(100 * engine.get_epsilon(DELTA)) / 100}")


if __name__ == "__main__":
    main()
