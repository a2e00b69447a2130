"""Made-up segments for the metrics: several references each, and hypotheses from perfect to useless."""

from __future__ import annotations

import random

NAMES = ("Blue Spice", "The Vaults", "Café Rouge", "Giraffe", "The Old Mill")
KINDS = ("pub", "coffee shop", "restaurant")
FOODS = ("English", "Chinese", "fast food", "Italian")
PLACES = ("the riverside", "the city centre", "Burger King", "the park")
TEMPLATES = (
    "{name} is a {kind} near {place} that serves {food} dishes.",
    "Near {place} there is a {kind} called {name}. It's serving {food}, and it is not expensive.",
    "You can't miss {name}, the {kind} by {place}; they serve {food} at a moderate price.",
    "The {kind} {name} serves {food}.",
)


def segments(count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    rng = random.Random(seed)
    hypotheses, references = [], []
    for _ in range(count):
        facts = {
            "name": rng.choice(NAMES),
            "kind": rng.choice(KINDS),
            "food": rng.choice(FOODS),
            "place": rng.choice(PLACES),
        }
        texts = [template.format(**facts) for template in TEMPLATES]
        references.append(rng.sample(texts, rng.randint(1, 3)))
        words = rng.choice(texts).split()
        kind = rng.randrange(5)
        if kind == 1:
            cut = rng.randrange(len(words))
            words = words[cut:] + words[:cut]
        elif kind == 2:
            words = [word + "s" if word.isalpha() and rng.random() < 0.3 else word for word in words]
        elif kind == 3:
            words = words[: len(words) // 2]
        elif kind == 4:
            words = (
                rng.choice(TEMPLATES)
                .format(
                    name=rng.choice(NAMES), kind=rng.choice(KINDS), food=rng.choice(FOODS), place=rng.choice(PLACES)
                )
                .split()
            )
        hypotheses.append(" ".join(words))
    return hypotheses, references
