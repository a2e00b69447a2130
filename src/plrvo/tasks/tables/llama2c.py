"""Small Llama models in the file layout of llama2.c, version 0, and the tokenizer that lies behind their weights.

The file is a header of seven 32-bit integers (width, hidden width, layers, heads, key-value heads, vocabulary, longest
sequence), then 32-bit floats: embeddings, and for all layers together each kind of matrix in turn, the rotary tables,
and the output matrix, which is missing where it is the embedding (a vocabulary with a positive sign).

llama2.c turns neighbouring pairs of coordinates, transformers turns coordinate i with i + half: `_rotated` puts the
rows of the query and key matrices in the other order, which leaves every inner product as it was.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from plrvo.validate import InvalidArgument

_HEADER = struct.Struct("<7i")
_BYTE_TOKENS = range(3, 259)  # one for each byte, after <unk>, <s> and </s>
_UNK, _BOS, _EOS = "<unk>", "<s>", "</s>"
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


@dataclass(frozen=True)
class Shape:
    """The header of a file."""

    width: int
    hidden: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    longest: int
    tied: bool

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what follows, in order."""
        keys, half = self.width // self.heads * self.key_heads, self.width // self.heads // 2
        parts = {
            "embedding": (self.vocabulary, self.width),
            "attention_norm": (self.layers, self.width),
            "query": (self.layers, self.width, self.width),
            "key": (self.layers, keys, self.width),
            "value": (self.layers, keys, self.width),
            "output": (self.layers, self.width, self.width),
            "hidden_norm": (self.layers, self.width),
            "gate": (self.layers, self.hidden, self.width),
            "down": (self.layers, self.width, self.hidden),
            "up": (self.layers, self.hidden, self.width),
            "norm": (self.width,),
            "cosines": (self.longest, half),
            "sines": (self.longest, half),
        }
        return parts if self.tied else {**parts, "head": (self.vocabulary, self.width)}


def read_weights(content: bytes) -> tuple[Shape, dict[str, NDArray[np.float32]], bytes]:
    """The header, the arrays by the names of `Shape.parts`, and the bytes that follow them."""
    if len(content) < _HEADER.size:
        raise InvalidArgument("model", f"{len(content)} bytes", "a file of llama2.c, version 0")
    width, hidden, layers, heads, key_heads, vocabulary, longest = _HEADER.unpack_from(content)
    positive = min(width, hidden, layers, heads, key_heads, abs(vocabulary), longest) > 0
    if not positive or width % (2 * heads) or heads % key_heads:
        raise InvalidArgument("model", _HEADER.unpack_from(content), "the header of a file of llama2.c, version 0")
    shape = Shape(width, hidden, layers, heads, key_heads, abs(vocabulary), longest, tied=vocabulary > 0)
    arrays, at = {}, _HEADER.size
    for name, dimensions in shape.parts.items():
        count = int(np.prod(dimensions))
        if at + 4 * count > len(content):
            raise InvalidArgument("model", f"{len(content):,} bytes", "a file of llama2.c that is not cut short")
        arrays[name] = np.frombuffer(content, "<f4", count, at).reshape(dimensions)
        at += 4 * count
    return shape, arrays, content[at:]


def build_llama(shape: Shape, arrays: dict[str, NDArray[np.float32]]) -> Any:
    """The same function as a `LlamaForCausalLM`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=shape.longest,
        rms_norm_eps=1e-5,
        tie_word_embeddings=shape.tied,
        bos_token_id=1,
        eos_token_id=2,
    )
    state = {
        "model.embed_tokens.weight": arrays["embedding"],
        "model.norm.weight": arrays["norm"],
        "lm_head.weight": arrays["embedding" if shape.tied else "head"],
    }
    for i in range(shape.layers):
        layer = f"model.layers.{i}."
        state |= {
            f"{layer}input_layernorm.weight": arrays["attention_norm"][i],
            f"{layer}self_attn.q_proj.weight": _rotated(arrays["query"][i], shape.heads),
            f"{layer}self_attn.k_proj.weight": _rotated(arrays["key"][i], shape.key_heads),
            f"{layer}self_attn.v_proj.weight": arrays["value"][i],
            f"{layer}self_attn.o_proj.weight": arrays["output"][i],
            f"{layer}post_attention_layernorm.weight": arrays["hidden_norm"][i],
            f"{layer}mlp.gate_proj.weight": arrays["gate"][i],
            f"{layer}mlp.down_proj.weight": arrays["down"][i],
            f"{layer}mlp.up_proj.weight": arrays["up"][i],
        }
    with torch.random.fork_rng(devices=[]):  # the initial weights, which are all replaced
        model: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
    return model


def read_tokenizer(content: bytes, vocabulary: int) -> Any:
    """A transformers tokenizer from llama2.c's tokenizer.bin: for each token its score, its length and its bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    tokens, scores = _read_tokens(content, vocabulary)
    ids = {token: i for i, token in enumerate(tokens)}
    merges = []
    for i in range(_BYTE_TOKENS.stop, vocabulary):
        token = tokens[i]
        halves = [(ids[token[:cut]], ids[token[cut:]]) for cut in range(1, len(token)) if _both(token, cut, ids)]
        merges += [(-scores[i], i, *pair) for pair in sorted(halves)]
    merges.sort()  # of two merges SentencePiece makes the one with the higher score first
    ranked = [(tokens[left], tokens[right]) for *_, left, right in merges]
    bpe = Tokenizer(models.BPE(vocab=ids, merges=ranked, unk_token=_UNK, fuse_unk=True, byte_fallback=True))
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)])
    bpe.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    words = {"unk_token": _UNK, "bos_token": _BOS, "eos_token": _EOS}
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **words)  # type: ignore[no-untyped-call]


def _both(token: str, cut: int, ids: dict[str, int]) -> bool:
    return token[:cut] in ids and token[cut:] in ids


def _read_tokens(content: bytes, vocabulary: int) -> tuple[list[str], list[float]]:
    tokens, scores, at = [_UNK, _BOS, _EOS], [0.0] * 3, 4  # the longest token's length comes first
    try:
        for i in range(vocabulary):
            score, length = struct.unpack_from("<fi", content, at)
            at += 8
            if length < 0 or at + length > len(content):
                raise ValueError
            text = content[at : at + length]
            at += length
            if i in _BYTE_TOKENS:
                tokens.append(f"<0x{i - _BYTE_TOKENS.start:02X}>")
                scores.append(score)
            elif i >= _BYTE_TOKENS.stop:
                tokens.append(text.decode("utf-8").replace(" ", _SPACE))
                scores.append(score)
    except (struct.error, ValueError):
        raise InvalidArgument("model", f"{len(content):,} bytes", "a whole tokenizer.bin of llama2.c") from None
    return tokens, scores


def _rotated(matrix: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)
