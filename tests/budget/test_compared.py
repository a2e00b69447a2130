"""A receipt beside its account."""

import shutil

from tests.budget.accounts import account, plan

from plrvo.budget.compared import account_differences


def charged(tmp_path, released=50):
    made, planned = account(tmp_path), plan()
    charge = made.reserve(planned, "first")
    charge.release(released)
    charge.let_go()
    return made, {"plan": planned.to_dict(), "steps": released, "budget": charge.record()}


def test_a_receipt_and_its_account_agree(tmp_path):
    made, receipt = charged(tmp_path)
    assert account_differences(receipt, made) == []
    made.settle(1)
    assert account_differences(receipt, made) == []
    older = {**receipt["plan"], "epsilon_certified": 9.0}  # what another version certified
    assert account_differences({**receipt, "plan": older}, made) == []


def test_what_differs_is_told(tmp_path):
    made, receipt = charged(tmp_path)
    cases = {
        "charged to no account": {"budget": None},
        "another plan": {"plan": plan(sigma=7.0).to_dict()},
        "has released 50": {"steps": 51},
        "belongs to the account '" + "0" * 32 + "' (entry 1); this is": {
            "budget": {**receipt["budget"], "account": "0" * 32}
        },
        "knows of 9": {"budget": {**receipt["budget"], "event": 9}},
        "gone another way": {"budget": {**receipt["budget"], "digest": "0" * 64}},
        "no entry 2": {"budget": {**receipt["budget"], "entry": 2}},
        "wrong form": {"budget": {"account": receipt["budget"]["account"]}},
    }
    for sentence, change in cases.items():
        (found,) = account_differences({**receipt, **change}, made)
        assert sentence in found


def test_an_older_copy_of_the_account_is_told(tmp_path):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    charge.release(25)
    shutil.copy(made.path, tmp_path / "copy")
    charge.release(50)
    receipt = {"plan": plan().to_dict(), "steps": 50, "budget": charge.record()}
    charge.let_go()
    shutil.copy(tmp_path / "copy", made.path)
    assert "an older copy was put back" in account_differences(receipt, made)[0]
