"""The presets, with a tiny model in a folder and a tiny copy of E2E."""

import io
import json
import zipfile
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from tests.refusals import refusals
from tests.tasks.tables.tiny import ENTRIES, save_folder

from plrvo.cli.main import main
from plrvo.tasks import catalog as tasks
from plrvo.tasks.tables import catalog, data, recipes, task
from plrvo.tasks.tables.data import Split
from plrvo.tasks.tables.formats import Entry
from plrvo.tasks.tables.generate import read_generations
from plrvo.tasks.tables.metrics import METRICS
from plrvo.tasks.tables.task import capped
from plrvo.validate import InvalidArgument


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with tiny/ and e2e/; the archive's checksum is taken from its content."""
    import hashlib

    def rows(entries):
        lines = ["mr,ref"]
        for entry in entries:
            meaning = ", ".join(f"{k}[{v}]" for k, v in (part.split(" : ") for part in entry.table.split(" | ")))
            lines += [f'"{meaning}",{text}' for text in entry.references]
        return ("\r\n".join(lines) + "\r\n").encode()

    contents = dict.fromkeys(catalog.E2E_FILES, rows(ENTRIES * 10)) | {
        "e2e-dataset/testset_w_refs.csv": rows(ENTRIES),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    archive_bytes = file.getvalue()
    known = replace(
        catalog.E2E.layouts[0].files[0], size=len(archive_bytes), sha256=hashlib.sha256(archive_bytes).hexdigest()
    )
    monkeypatch.setattr(
        catalog, "E2E", replace(catalog.E2E, layouts=(replace(catalog.E2E.layouts[0], files=(known,)),))
    )
    monkeypatch.setattr(catalog, "E2E_FILES", {name: len(content) for name, content in contents.items()})
    monkeypatch.setitem(recipes.EXAMPLES, "e2e", 80)
    (tmp_path / "e2e").mkdir()
    (tmp_path / "e2e" / catalog.E2E_ARCHIVE).write_bytes(archive_bytes)
    save_folder(tmp_path / "tiny", "llama")
    return tmp_path


def command(folder, *more, seed=("--seed", "1")):
    fixed = ["train", "e2e", "--model", str(folder / "tiny"), "--data-dir", str(folder), "--max-length", "50", "--json"]
    quick = ["--steps", "3", "--sample-rate", "0.2", *seed, "--beams", "2", "--out", str(folder / "run")]
    return [*fixed, *quick, *more]


@pytest.mark.parametrize("trainable", ["all", "lora", "lora --layers 1", "lora --layers 1 --bf16"])
def test_a_private_run_from_the_command_line(folder, capsys, trainable):
    budget = ["--epsilon", "4", "--delta", "1e-3", "--trainable", *trainable.split()]
    assert main(command(folder, *budget)) == 0
    result = json.loads(capsys.readouterr().out)
    assert {metric.name for metric in METRICS} < result.keys()
    assert result["epsilon_certified"] <= 4
    receipt = json.loads((folder / "run" / "receipt.json").read_text())
    task = receipt["task"]
    assert task["examples"] == 80
    assert task["unit"].startswith("one pair")
    assert (task.get("beneath") == "bfloat16") == ("bf16" in trainable)
    assert task["trainable_parameters"] == receipt["plan"]["workload"]["dimension"]
    assert task["metrics"]["meteor_exact_stem"].startswith("METEOR 1.5's formula")
    assert receipt["group"]["size"] == task["group_size"] == 30  # "Spice" has three texts, ten times over
    assert receipt["group"]["certified"] is None or receipt["group"]["certified"] > 4
    assert receipt["run"]["metrics"]["bleu"] == result["bleu"]
    texts = read_generations(folder / "run" / "generations.jsonl")
    assert [row.table for row in texts] == [entry.table for entry in ENTRIES]
    assert main(["verify", str(folder / "run" / "receipt.json")]) == 0
    with safe_open(folder / "run" / "model.safetensors", "pt") as weights:
        assert (weights.metadata() is not None) == ("lora" in trainable)
        if "lora" in trainable:
            assert all("lora_" in name for name in weights.keys())  # noqa: SIM118 - it is no mapping
            assert "tiny" in weights.metadata()["base"]
    told = capsys.readouterr().out
    assert "privacy unit: one pair of a table and a text" in told
    assert "for all texts of one table (at most 30 examples, as the run recorded)" in told


def test_a_run_shows_one_of_its_texts_and_says_where_all_are(folder, capsys):
    words = [word for word in command(folder, "--epsilon", "4", "--delta", "1e-3") if word != "--json"]
    assert main(words) == 0
    told = capsys.readouterr().out
    first = read_generations(folder / "run" / "generations.jsonl")[0]
    assert (
        f"for example, {first.table!r}: {first.hypothesis!r}; all texts: {folder / 'run' / 'generations.jsonl'}" in told
    )


def test_a_run_is_resumed_with_the_same_settings_only(folder, capsys):
    budget = ["--epsilon", "4", "--delta", "1e-3"]
    assert main(command(folder, *budget)) == 0
    first = json.loads(capsys.readouterr().out)
    for other in (["--references", "2"], ["--bf16"]):
        assert main(command(folder, *budget, "--resume", *other)) == 2
        assert "as in the run that is resumed" in capsys.readouterr().err
    assert main(command(folder, *budget, "--resume")) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["cider"] == first["cider"]


@pytest.mark.parametrize("seed", [("--seed", "1"), ()])
def test_a_run_that_was_stopped_while_it_wrote_texts_writes_them_when_it_is_resumed(folder, capsys, monkeypatch, seed):
    def stopped(*_):
        raise KeyboardInterrupt

    budget = ["--epsilon", "4", "--delta", "1e-3"]
    with monkeypatch.context() as patched:
        patched.setattr(task, "generate", stopped)
        assert main(command(folder, *budget, seed=seed)) == 130
    assert "this continues: plrvo train --resume" in capsys.readouterr().err
    assert main(["train", "--resume", "--out", str(folder / "run"), "--data-dir", str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert "bleu" in result
    assert read_generations(folder / "run" / "generations.jsonl")
    assert main(["verify", str(folder / "run" / "receipt.json")]) == 0


def test_one_text_for_each_table_makes_the_pair_the_table(folder, capsys):
    assert main(command(folder, "--epsilon", "4", "--delta", "1e-3", "--references", "1", "--test-limit", "2")) == 0
    receipt = json.loads((folder / "run" / "receipt.json").read_text())
    assert receipt["task"]["examples"] == len(ENTRIES)
    assert receipt["group"]["certified"] == receipt["epsilon"]["certified"]
    assert len(read_generations(folder / "run" / "generations.jsonl")) == 2


def test_a_claim_for_groups_is_verified(folder, capsys):
    assert main(command(folder, "--epsilon", "4", "--delta", "1e-3", "--references", "2")) == 0
    path = folder / "run" / "receipt.json"
    receipt = json.loads(path.read_text())
    assert 8 < receipt["group"]["certified"] < 100
    larger = {"task": receipt["task"] | {"group_size": 3}}
    without = {"task": {name: value for name, value in receipt["task"].items() if "group" not in name}, "group": None}
    for change, said in (
        ({"group": receipt["group"] | {"certified": 4.0}}, "group.certified"),
        (larger, "at most 2 texts"),
        (without, "task.group_size"),
        ({"task": receipt["task"] | {"unit": "one table with all of its texts"}}, "task.unit"),
        ({"task": receipt["task"] | {"group": "one city"}}, "task.group is"),
    ):
        path.write_text(json.dumps({**receipt, **change}))
        capsys.readouterr()
        assert main(["verify", str(path)]) == 1
        assert said in capsys.readouterr().out


def test_a_run_without_privacy_learns_and_tells_its_metrics(folder, capsys):
    more = ["--noise", "none", "--lr", "0.01", "--evaluate-every", "20"]
    asked = [word if word != "3" else "60" for word in command(folder, *more)]
    assert main(asked) == 0
    result = json.loads(capsys.readouterr().out)
    history = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert history[-1]["loss"] < history[0]["loss"] < 4
    assert result["private"] is False
    assert result["rouge_l"] > 0.3


def test_the_same_seed_gives_the_same_generations(folder, capsys):
    texts = []
    drawn = ["--noise", "none", "--beams", "1", "--top-p", "0.9"]
    for out in ("a", "b"):
        assert main(command(folder, *drawn, "--out", str(folder / out))) == 0
        texts.append((folder / out / "generations.jsonl").read_bytes())
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--beams", "0"], "--beams 0"),
        (["--top-p", "0.5"], "--beams 2"),
        (["--max-length", "3"], "--max-length 3"),
        (["--references", "0"], "--references 0"),
        (["--test-limit", "0"], "--test-limit 0"),
        (["--limit", "-1"], "--limit -1"),
        (["--trainable", "bias"], "--trainable bias"),
        (["--model", "no/such-model"], "--model no/such-model"),
        (["--data", "hf:x"], "--data hf:x"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(folder, capsys, monkeypatch, more, named):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert main(command(folder, "--epsilon", "4", "--delta", "1e-3", *more)) == 2
    lines = refusals(capsys.readouterr().err)
    assert len(lines) == 1
    assert named in lines[0]
    assert not (folder / "run").exists()


def test_long_examples_are_cut_and_counted_where_the_count_may_be_seen(folder, capsys):
    asked = ("--epsilon", "4", "--delta", "1e-3", "--max-length", "12", "--unsafe-diagnostics")
    assert main(command(folder, *asked)) == 0
    first = (folder / "run" / "unsafe-diagnostics.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["truncated_examples"] > 10
    assert "truncated" not in (folder / "run" / "receipt.json").read_text()


def test_dart_says_that_it_trains_on_webnlg(folder, monkeypatch):
    split = Split(ENTRIES)
    made = {
        "dart": data.TableData("dart", Split(()), split, split, "dart from --data-dir"),
        "webnlg": data.TableData("webnlg", split, split, split, "webnlg2017 from --data-dir"),
    }
    monkeypatch.setattr(data, "load_tables", lambda name, data_dir=None: made[name])
    preset = tasks.prepare(
        tasks.Request("dart", str(folder / "tiny"), folder, {"max_length": 50}), torch.Generator().manual_seed(1)
    )
    assert "trains on WebNLG" in preset.task.warnings[0]
    assert preset.task.description["data_source"].startswith("training: webnlg2017")


def test_references_are_capped_over_all_entries_of_a_table():
    split = Split((Entry("a", ("1", "2")), Entry("b", ("3",)), Entry("a", ("4", "5"))))
    assert capped(split, 3).pairs == [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")]
    assert capped(split, 1).pairs == [("a", "1"), ("b", "3")]
    assert capped(split, None) is split
    with pytest.raises(InvalidArgument, match="references"):
        capped(split, 0)


def test_kept_states_are_those_of_the_texts_that_are_held_out(folder, monkeypatch):
    """As many of them: those of another `test_limit` are other ones."""
    monkeypatch.setattr(task, "LOSS_ENTRIES", 2)
    kept: dict = {}

    def loss(limit, kept):
        options = {"layers": 1, "trainable": "all", "limit": 5, "max_length": 50, "test_limit": limit}
        request = tasks.Request("e2e", str(folder / "tiny"), folder, options, kept)
        preset = task.prepare(request, torch.Generator().manual_seed(0))
        return preset.task.evaluate(preset.module)

    assert loss(2, kept) == loss(2, None) == loss(2, kept)
    assert loss(3, kept) == loss(3, None) != loss(2, None)
