"""What a guarantee means for one person, and what it covers, in words that a newcomer understands."""

from __future__ import annotations

from plrvo.accounting.adjacency import Adjacency
from plrvo.accounting.attacker import Pair, QuickMoments, most_often_right
from plrvo.accounting.printed import rounded_up
from plrvo.audit.receipt import Examined
from plrvo.records.receipt import Bracket
from plrvo.validate import counted

_LITTLE = 0.99  # right guesses, beyond which a bound on them is no comfort


def meaning(receipt: Examined) -> str | None:
    """What the certified epsilon means for one person."""
    certified = receipt.bracket.certified
    if certified is None or not 0 <= receipt.delta < 1:
        return None
    share = most_often_right([(certified, receipt.delta), *_by_moments(receipt)])
    return (
        "Flip a fair coin to decide whether one example is trained on. Whoever then guesses the coin from the model, "
        f"knowing everything else, is right in at most {rounded_up(100 * share, 3)} % of cases; 50 % is blind guessing."
        + (" So large an epsilon promises little." if share > _LITTLE else "")
    )


def _by_moments(receipt: Examined) -> list[Pair]:
    """More of what is proved for the same steps, as `plrvo explore` has it: at larger deltas epsilon is far smaller.

    Nothing where that is not quick, or not of these steps alone: the certified pair bounds guesses by itself.
    """
    if not receipt.sound or receipt.searched is not None:
        return []
    ledger = receipt.ledger
    return QuickMoments(ledger.entries).pairs(receipt.delta) if QuickMoments.fit(ledger) else []


def published_note(bracket: Bracket) -> str:
    """How the paper's formula stands beside the bracket."""
    if bracket.published is None or bracket.certified is None:
        return "The paper has no formula for this noise."
    if bracket.refutes_published:
        return "Refuted: an attacker provably reaches more than this. It is not a guarantee."
    if bracket.published < bracket.certified:
        return "Neither proved nor refuted: it lies between the two bounds. It is not a guarantee."
    return "More than what is proved: here the formula errs on the safe side."


def remarks(receipt: Examined) -> list[str]:
    """What a line about a run has to say beside its epsilon."""
    found = ["fixed seed: not private"] if receipt.seeded else []
    found += ["best of a search, which epsilon is of"] if receipt.searched else []
    found += [] if receipt.exact else ["floating point"]
    found += [f"after {receipt.postprocess}"] if receipt.postprocess else []
    found += [f"{receipt.steps} of {counted(receipt.planned, 'step')}"] if receipt.steps < receipt.planned else []
    found += ["unsafe diagnostics"] if receipt.unsafe else []
    found += [f"weights of step {receipt.weights_of}"] if receipt.weights_of < receipt.steps else []
    return found


def facts(receipt: Examined, written: str | None) -> list[tuple[str, str]]:
    """What was trained on what, and when."""
    known = [
        ("Model", f"{receipt.model or 'not named'}, {receipt.dimension:,} trained parameters"),
        ("Data", f"{receipt.task}" + (f", {counted(receipt.examples, 'example', ',.0f')}" if receipt.examples else "")),
        ("Source", receipt.source or "not named"),
        ("Clip", f"{receipt.clip:g}"),
        ("Sampling", f"rate {receipt.sample_rate:.4g}, {counted(receipt.steps, 'step', ',')}"),
        ("Remarks", "; ".join(remarks(receipt)) or "none"),
    ]
    known += [] if receipt.searched is None else [("Epsilon of", str(receipt.searched))]
    return [*known, ("Receipt of", written)] if written else known


def coverage(receipt: Examined) -> list[tuple[str, str]]:
    """What the guarantee is about, and what it is not."""
    zeroed = receipt.adjacency == Adjacency.zero_out
    whom = "set to zero" if zeroed else "left out"
    items = [
        (
            "Who is protected",
            f"Each single training example: the run would be about as likely had it been {whom} (adjacency: "
            f"{receipt.adjacency}). Someone with several examples in the data is protected less.",
        ),
        *_units(receipt),
        ("How data was sampled", _sampling(receipt)),
        (
            "Delta",
            f"{rounded_up(receipt.delta)}: the share of the guarantee that may fail. Keep it far below one over the "
            "number of examples" + (f", here {1 / receipt.examples:.2g}." if receipt.examples else "."),
        ),
        (
            "Arithmetic",
            receipt.arithmetic[:1].upper() + receipt.arithmetic[1:] + ".",
        ),
        ("Examples apart", receipt.isolation[:1].upper() + receipt.isolation[1:] + "."),
        ("Randomness", ("Warning: noise from " if receipt.seeded else "Noise from ") + receipt.randomness + "."),
    ]
    chosen = "this run among others"
    if receipt.searched is not None:
        items.append(("How it was chosen", f"Epsilon is that of {receipt.searched}. Choosing the best is paid for."))
        chosen = "this search among others"
    items.append(
        (
            "Not covered",
            f"Choosing {chosen} on the same data, the test data that its metrics come from, and anything else that was "
            "published about the training data. Several published runs add up.",
        )
    )
    return items


def _units(receipt: Examined) -> list[tuple[str, str]]:
    """What one example is, and what holds for those that belong together, in the words of `plrvo verify`."""
    if not receipt.sound:
        return []  # whatever its file says there, nothing is known of it
    unit, *groups = (line[:1].upper() + line[1:] + "." for line in receipt.unit_lines)
    name, _, words = unit.partition(": ")
    return [(name, words[:1].upper() + words[1:]), *(("Groups", group) for group in groups)]


def _sampling(receipt: Examined) -> str:
    if receipt.sampler == "poisson":
        return (
            f"Every example enters each step by a coin of its own, with probability {receipt.sample_rate:g}. Nobody "
            "sees the coins (Poisson sampling)."
        )
    return receipt.sampler[:1].upper() + receipt.sampler[1:] + "."
