"""A search from its beginning to its end: what it releases, what it forgets, and that it can go on."""

import json
import shutil
import stat
from pathlib import Path

import pytest
from tests.tasks.tuning.searches import small

from plrvo import InvalidArgument, verify
from plrvo.accounting.selection import Search
from plrvo.budget import Account
from plrvo.records import Receipt
from plrvo.report.loading import read_run
from plrvo.report.page import make_page
from plrvo.tasks.tuning import Listed
from plrvo.tasks.tuning import run as running
from plrvo.tasks.tuning.run import begin, finish
from plrvo.tasks.tuning.state import State
from plrvo.tasks.tuning.trial import run_trial


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """One finished search that others look at, and what was secret of it."""
    out = tmp_path_factory.mktemp("search") / "out"
    tuning = small(vary={"learning_rate": Listed((0.5, 2.0)), "clip": Listed((0.5, 1.0))})
    begin(tuning, out)
    state = State.read(out)
    folder = state.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    numbers, scores = list(state.numbers), {}
    original = State.finish_trial

    def noted(self, done):
        scores[done.number] = done
        original(self, done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(State, "finish_trial", noted)
        found = finish(out)
    return tuning, out, found, state, numbers, scores


def test_the_best_by_its_noisy_score_is_released_and_nothing_else_is_left(searched):
    _, out, found, state, numbers, scores = searched
    assert sorted(scores) == numbers
    assert len(numbers) > 1  # by the seed: or nothing is chosen here
    best = max(scores.values(), key=lambda done: done.rank)
    receipt = Receipt.read(out / "receipt.json")
    assert receipt["search"]["score"] == pytest.approx(best.score / 1024 / receipt["task"]["held_out"])
    assert receipt["run"]["learning_rate"] * receipt.clip == pytest.approx(state.settings(best.number)["learning_rate"])
    assert receipt.clip == state.settings(best.number)["clip"]
    assert sorted(path.name for path in out.iterdir()) == [
        "journal.jsonl",
        "metrics.jsonl",
        "model.safetensors",
        "receipt.json",
    ]
    assert "epsilon" not in (out / "metrics.jsonl").read_text()
    assert found.receipt == receipt


def test_the_receipt_claims_the_epsilon_of_the_search_and_is_recomputed(searched):
    tuning, out, found, *_ = searched
    receipt = Receipt.read(out / "receipt.json")
    assert verify(out / "receipt.json") == []
    search = Search.from_dict(receipt["search"]["cost"])
    assert len(search.training) == 2
    assert receipt.bracket.certified == pytest.approx(search.certified(1e-5).value)
    assert receipt.plan.bracket.certified < 2.9 < receipt.bracket.certified <= 3.0
    assert receipt.budget == tuning.epsilon == 3.0
    assert found.epsilon == receipt.bracket.certified


def _signed(document):
    return Receipt.signed({name: value for name, value in document.items() if name not in ("receipt", "digest")})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["epsilon"].update(certified=d["plan"]["epsilon_certified"]), "epsilon.certified"),
        (lambda d: d["search"]["cost"]["count"].update(gamma=0.9), "epsilon.certified"),
        (lambda d: d["search"]["cost"]["count"].update(eta=-2), "wrong form"),
        (lambda d: d["search"]["cost"].update(training=d["search"]["cost"]["training"][:1] * 2), "none of those"),
        (lambda d: d["search"].update(epsilon=1.0), "exceeds the budget 1.0"),
        (lambda d: d["search"].update(kept=[1, 1]), "epsilon.certified"),
        (lambda d: d["search"].pop("vary"), "wrong form"),
        (lambda d: d.pop("search"), "holds examples out"),
        (lambda d: d["task"].pop("held_out"), "tells of none"),
        (lambda d: d["search"]["cost"].update(score=None), "does not charge for counts"),
        (lambda d: d["search"]["cost"]["score"][0]["workload"].update(clip=0.5), "does not charge for counts"),
        (lambda d: d["search"]["cost"]["score"][0]["workload"].update(sample_rate=0.5), "does not charge for counts"),
    ],
)
def test_a_tampered_receipt_is_refused(searched, tmp_path, change, said):
    _, out, *_ = searched
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    document = json.loads((copy / "receipt.json").read_text())
    if said == "none of those":  # a search whose trials have another noise than the run
        for ledger in document["search"]["cost"]["training"]:
            ledger[0]["noise"]["sigma"] *= 1.5
    else:
        change(document)
    _signed(document).write(copy / "receipt.json")
    assert any(said in sentence for sentence in verify(copy / "receipt.json"))
    if said == "wrong form":
        with pytest.raises(InvalidArgument):
            read_run(copy)
    else:
        assert "does not verify" in make_page([read_run(copy)]).decode()


def test_a_report_says_that_choosing_was_paid_for(searched):
    _, out, *_ = searched
    page = make_page([read_run(out)]).decode()
    assert "for the whole search that this run is the best of" in page
    assert str(Receipt.read(out / "receipt.json").searched) in page
    assert "Choosing this run among others" not in page


def test_a_search_that_was_interrupted_has_the_same_trials_and_repeats_none(tmp_path, monkeypatch):
    out, done = tmp_path / "out", []

    def stops(folder, number, kept=None):
        if len(done) == 1:
            state.begin_trial(number).mkdir()  # half of a trial
            raise KeyboardInterrupt
        done.append(number)
        return run_trial(folder, number, kept)

    begin(small(job={"seed": None}), out)
    state = State.read(out)
    document = {**state.document, "trials": (state.document["trials"] * 2)[:2]}  # two, however many were drawn
    (state.folder / "state.json").write_text(json.dumps(document))
    monkeypatch.setattr(running, "run_trial", stops)
    with pytest.raises(KeyboardInterrupt):
        finish(out)
    assert State.read(out).document == document
    with pytest.raises(InvalidArgument, match="this one holds a search"):
        begin(small(), out)

    def counted(folder, number, kept=None):
        done.append(number)
        return run_trial(folder, number, kept)

    monkeypatch.setattr(running, "run_trial", counted)
    assert finish(out).receipt is not None
    assert done == [0, 1]
    assert not (out / ".search").exists()
    assert verify(out / "receipt.json") == []
    with pytest.raises(InvalidArgument, match="has not ended"):
        finish(out)


def test_a_crash_before_the_secrets_are_removed_leaves_a_search_that_can_be_resumed(tmp_path, monkeypatch):
    """Of an account: its entry was settled first, and then the folder with all scores could not be resumed away."""
    account = Account.create(tmp_path / "a.budget", name="digits", epsilon=9, delta=1e-5)
    out = tmp_path / "out"

    def killed(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(State, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            small(job={"budget": account.path}).run(out)
    entry, released = account.state().entry(1), Receipt.read(out / "receipt.json")
    assert entry.released == entry.charged == entry.planned
    assert finish(out).receipt == released
    assert not (out / ".search").exists()
    assert account.state().entry(1).settled == entry.planned


def test_what_is_released_is_no_file_of_the_trial(tmp_path, monkeypatch):
    """A file that is moved keeps the time at which it was born, and with it the place of the best trial."""
    out, looked = tmp_path / "out", []
    original = running.release

    def noted(state, *rest):
        found, folder = original(state, *rest), state.trial(state.best().number)
        for name in ("model.safetensors", "journal.jsonl", "metrics.jsonl", "receipt.json"):
            looked.append((out / name).samefile(folder / name))  # both are there: no number was used twice
        return found

    monkeypatch.setattr(running, "release", noted)
    assert small().run(out).receipt is not None
    assert looked == [False] * 4


def test_where_no_trial_is_drawn_nothing_is_released_and_it_is_paid_for(tmp_path):
    account = Account.create(tmp_path / "a.budget", name="digits", epsilon=9, delta=1e-5)
    tuning = small(distribution="poisson", trials_mean=1.0, job={"budget": account.path, "seed": 0})
    found = tuning.run(tmp_path / "out")
    assert found.receipt is None
    assert 0 < found.epsilon <= 3
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["nothing.json"]
    entry = account.state().entry(1)
    assert entry.settled == entry.planned == 3


def test_a_trial_that_diverges_loses_and_a_search_of_them_releases_nothing(tmp_path):
    """With this seed the weights overflow in all trials; with some they stay finite, though of no use."""
    tuning = small(vary={"learning_rate": Listed((9e36,))}, trials_mean=1.5, job={"seed": 1})
    assert tuning.run(tmp_path / "out").receipt is None


def test_an_account_is_charged_for_the_search_once(tmp_path):
    account = Account.create(tmp_path / "a.budget", name="digits", epsilon=5, delta=1e-5)
    small(job={"budget": account.path}).run(tmp_path / "first")
    standing = account.state().standing()
    assert 3 < standing.spent < 5  # by moments at orders that were fixed beforehand: more than the certified 3
    assert verify(tmp_path / "first" / "receipt.json", account.path) == []
    assert account.state().as_fixed() is None
    with pytest.raises(InvalidArgument, match="room for a search"):
        small(job={"budget": account.path}).run(tmp_path / "second")
    assert not (tmp_path / "second" / ".search").exists()


def test_kept_trials_cost_their_sum(tmp_path):
    out = tmp_path / "out"
    found = small(keep_trials=True).run(out)
    kept = len(list((out / "trials").iterdir()))
    assert found.receipt is not None
    assert found.receipt["search"]["kept"] == [kept]
    assert kept > 1
    assert found.epsilon > 1.1 * found.search.certified(1e-5).value
    assert verify(out / "receipt.json") == []
    with pytest.raises(InvalidArgument, match="budget"):
        small(keep_trials=True, job={"budget": tmp_path / "a.budget"})


def _killed(*_):
    raise KeyboardInterrupt


def test_a_copy_of_a_search_releases_nothing_once_the_other_has(tmp_path, monkeypatch):
    """The first is killed after its release and before its entry is settled: one charge, and two models."""
    account = Account.create(tmp_path / "a.budget", name="digits", epsilon=9, delta=1e-5)
    one, two = tmp_path / "one", tmp_path / "two"
    begin(small(job={"budget": account.path, "seed": None}), one)
    shutil.copytree(one, two)
    with monkeypatch.context() as patch:
        patch.setattr(running.Charge, "settle", _killed)
        with pytest.raises(KeyboardInterrupt):
            finish(one)
    with pytest.raises(InvalidArgument, match="older copy"):
        finish(two)
    assert [path.name for path in two.iterdir() if path.name != ".lock"] == [".search"]
    assert len(account.state().entries) == 1


@pytest.mark.parametrize("last", ["release", "end"])
def test_a_copy_made_during_the_release_comes_to_the_same_one_or_to_none(tmp_path, monkeypatch, last):
    account = Account.create(tmp_path / "a.budget", name="digits", epsilon=9, delta=1e-5)
    one, two, torn = tmp_path / "one", tmp_path / "two", tmp_path / "torn"
    begin(small(job={"budget": account.path, "seed": None}), one)
    with monkeypatch.context() as patch:
        patch.setattr(running.Charge if last == "release" else State, last, _killed)
        with pytest.raises(KeyboardInterrupt):
            finish(one)
    shutil.copytree(one, two)
    shutil.copytree(one, torn)
    chosen = State.read(one).document["release"]["trial"]
    (torn / ".search" / f"trial-{chosen:04d}" / "model.safetensors").write_bytes(b"of another attempt")
    with pytest.raises(InvalidArgument, match="older copy"):
        finish(torn)
    (torn / ".search" / f"done-{chosen:04d}.json").unlink()
    with pytest.raises(InvalidArgument, match="older copy"):
        finish(torn)
    with monkeypatch.context() as patch:
        patch.setattr(running.Charge, "settle", _killed)
        with pytest.raises(KeyboardInterrupt):
            finish(one)
    finish(two)
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    assert account.state().entry(1).settled is not None


def test_what_the_account_has_of_a_release_is_a_digest_and_no_other_search_has_it(tmp_path):
    account = Account.create(tmp_path / "a.budget", name="digits", epsilon=9, delta=1e-5)
    for name in ("first", "second"):
        small(job={"budget": account.path}).run(tmp_path / name)
    first, second = (entry.mark for entry in account.state().entries)
    assert len(first) == len(second) == 64
    assert first != second  # though the seed is the same


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("count", range(5))
def test_a_kill_while_secrets_are_removed_leaves_what_can_be_resumed_away(tmp_path, monkeypatch, count, settled):
    account = Account.create(tmp_path / "a.budget", name="digits", epsilon=9, delta=1e-5)
    out, calls = tmp_path / "out", []

    def counted(original):
        def call(path, *rest, **options):
            if ".search" in str(path):
                if len(calls) == count:
                    raise KeyboardInterrupt
                calls.append(path)
            return original(path, *rest, **options)

        return call

    def removed(self):
        with monkeypatch.context() as patch:
            for owner, name in ((shutil, "rmtree"), (Path, "unlink"), (Path, "rmdir")):
                patch.setattr(owner, name, counted(getattr(owner, name)))
            original(self)

    original = State.remove
    with monkeypatch.context() as patch:
        patch.setattr(State, "remove", removed)
        with pytest.raises(KeyboardInterrupt):
            small(job={"budget": account.path}).run(out)
    released = Receipt.read(out / "receipt.json")
    assert "trials" not in State.read(out).document
    if settled:
        account.settle(1)
    assert finish(out).receipt == released
    assert not (out / ".search").exists()
    assert account.state().entry(1).settled == 3


@pytest.mark.parametrize(("name", "value"), [("clip", 1e-25), ("sample_rate", 1e-300)])
def test_what_a_trial_would_refuse_is_refused_before_anything_is_charged(tmp_path, name, value):
    account = Account.create(tmp_path / "a.budget", name="digits", epsilon=9, delta=1e-5)
    job = {"budget": account.path, name: None}
    with pytest.raises(InvalidArgument, match=f"^{name}="):
        small(vary={name: Listed((value, 1.0))}, job=job).run(tmp_path / "out")
    assert not account.state().entries
    assert not (tmp_path / "out" / ".search").exists()
