"""Examples as tokens, padded to the longest of their batch and cut at a length that the caller sets."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from plrvo.tasks.text.data import Examples
from plrvo.tasks.transformer import quiet
from plrvo.validate import InvalidArgument


class Tokens(Dataset[Any]):
    """Whole batches of (inputs by name, labels); `lengths` in tokens, `truncated` examples were longer."""

    def __init__(self, examples: Examples, tokenizer: Any, max_length: int, classes: int) -> None:
        wrong = [label for label in examples.labels if not 0 <= label < classes]
        if wrong:
            raise InvalidArgument("labels", wrong[0], f"class numbers from 0 to {classes - 1}")
        self.labels = torch.tensor(examples.labels)
        pairs = (examples.texts,) if examples.seconds is None else (examples.texts, examples.seconds)
        with quiet():
            encoded = tokenizer(*pairs, return_attention_mask=False)
            long = [i for i, ids in enumerate(encoded["input_ids"]) if len(ids) > max_length]
            if long:
                columns = ([column[i] for i in long] for column in pairs)
                cut = tokenizer(
                    *columns, truncation="longest_first", max_length=max_length, return_attention_mask=False
                )
                for name, rows in cut.items():
                    for i, row in zip(long, rows, strict=True):
                        encoded[name][i] = row
        self.truncated = len(long)
        self._columns = {name: [torch.tensor(row) for row in rows] for name, rows in encoded.items()}
        self._padding = dict.fromkeys(encoded, 0) | {"input_ids": tokenizer.pad_token_id}
        self.lengths = torch.tensor([len(row) for row in self._columns["input_ids"]])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        inputs, labels = self.__getitems__([index])
        return {name: column[0] for name, column in inputs.items()}, labels[0]

    def __getitems__(self, indices: list[int]) -> Any:
        inputs = {
            name: pad_sequence([rows[i] for i in indices], batch_first=True, padding_value=self._padding[name])
            for name, rows in self._columns.items()
        }
        lengths = self.lengths[indices]
        inputs["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        return inputs, self.labels[indices]
