"""A folder with a model is data: nothing in it is run, whatever it says about itself."""

import json

import pytest
import torch
from tests.hostile.test_no_pickle import Trap
from tests.tasks.tables.tiny import save_folder
from tests.tasks.text.tiny import CLASSES, save_checkpoint

from plrvo.tasks.tables.models import load_language
from plrvo.tasks.text.catalog import TEXT_SETS
from plrvo.tasks.text.hub import load_from_hub
from plrvo.tasks.text.models import load_checkpoint
from plrvo.validate import InvalidArgument

CODE = """
from pathlib import Path
Path({sprung!r}).touch()
from transformers import {kind}Config, {kind}{head}, PreTrainedTokenizerFast
class OwnConfig({kind}Config):
    model_type = "own"
class OwnModel({kind}{head}):
    config_class = OwnConfig
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


def classifier(folder):
    return load_checkpoint(str(folder), CLASSES, torch.Generator().manual_seed(1))


def language(folder):
    return load_language(str(folder))


FOLDERS = {
    "classifier": (save_checkpoint, classifier, "Bert", "ForSequenceClassification"),
    "language model": (save_folder, language, "GPT2", "LMHeadModel"),
}


def changed(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def trapped(name, folder):
    """The folder with a module in it that leaves a file behind when it is imported."""
    save, load, kind, head = FOLDERS[name]
    save(folder / "model")
    sprung = folder / "sprung"
    (folder / "model" / "own.py").write_text(CODE.format(sprung=str(sprung), kind=kind, head=head))
    own = dict.fromkeys(("AutoModel", "AutoModelForSequenceClassification", "AutoModelForCausalLM"), "own.OwnModel")
    changed(folder / "model" / "config.json", auto_map={"AutoConfig": "own.OwnConfig", **own})
    changed(folder / "model" / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "own.OwnTokenizer"]})
    return folder / "model", load, sprung


@pytest.mark.parametrize("name", FOLDERS)
def test_the_trap_would_spring_if_code_were_trusted(name, tmp_path, monkeypatch):
    from transformers import AutoConfig

    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder, _, sprung = trapped(name, tmp_path)
    AutoConfig.from_pretrained(str(folder), trust_remote_code=True)
    assert sprung.exists()


@pytest.mark.parametrize("name", FOLDERS)
def test_code_beside_a_model_of_a_known_kind_is_not_run(name, tmp_path):
    folder, load, sprung = trapped(name, tmp_path)
    assert type(load(folder).model).__module__.startswith("transformers.")
    assert not sprung.exists()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_model_that_needs_its_own_code_is_refused_in_one_line(name, tmp_path, capsys):
    folder, load, sprung = trapped(name, tmp_path)
    changed(folder / "config.json", model_type="own")
    with pytest.raises(InvalidArgument) as refused:
        load(folder)
    assert str(refused.value).isprintable()
    assert not sprung.exists()
    assert capsys.readouterr().out == ""  # nobody is asked whether to trust it


@pytest.mark.parametrize("name", FOLDERS)
def test_weights_in_a_pickle_are_not_read(name, tmp_path):
    save, load, _, _ = FOLDERS[name]
    folder = save(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    trap = Trap(tmp_path / "sprung")
    torch.save(trap, folder / "pytorch_model.bin")
    with pytest.raises(InvalidArgument) as refused:
        load(folder)
    assert str(refused.value).isprintable()
    assert not trap.path.exists()


def test_a_script_that_loads_data_is_not_run(tmp_path):
    pytest.importorskip("datasets")
    folder, sprung = tmp_path / "own", tmp_path / "sprung"
    folder.mkdir()
    (folder / "own.py").write_text(f"from pathlib import Path\nPath({str(sprung)!r}).touch()\n")
    with pytest.raises(InvalidArgument):
        load_from_hub(TEXT_SETS["sst2"], f"hf:{folder}")
    assert not sprung.exists()
