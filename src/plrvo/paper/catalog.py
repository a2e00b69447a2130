"""Every table and figure of the paper by name, the comparisons that it does not make, and studies beside it."""

from __future__ import annotations

from plrvo.paper import (
    audits,
    classification,
    cnn_tables,
    convergence,
    delta_test,
    dependency,
    fair,
    ftrl,
    generation_tables,
    mechanisms,
    privacy_loss,
    search_space_edge,
    search_space_region,
    snr,
    study_batches,
    study_correlated,
    study_e2e,
    study_layers,
    study_map,
    study_narrower,
    study_scattering,
    study_signal,
    study_smollm,
    study_sst2,
    study_tight,
    theta_k,
    utility,
    vit,
    volumes,
)
from plrvo.paper.entry import Entry
from plrvo.validate import InvalidArgument, nearest

ENTRIES: tuple[Entry, ...] = (
    *mechanisms.ENTRIES,
    *delta_test.ENTRIES,
    *volumes.ENTRIES,
    *theta_k.ENTRIES,
    *snr.ENTRIES,
    *utility.ENTRIES,
    *vit.ENTRIES,
    *classification.ENTRIES,
    *generation_tables.ENTRIES,
    *audits.ENTRIES,
    *privacy_loss.ENTRIES,
    *convergence.ENTRIES,
    *ftrl.ENTRIES,
    *dependency.ENTRIES,
    *search_space_region.ENTRIES,
    *search_space_edge.ENTRIES,
    *cnn_tables.ENTRIES,
    *fair.ENTRIES,
    *study_scattering.ENTRIES,
    *study_batches.ENTRIES,
    *study_correlated.ENTRIES,
    *study_sst2.ENTRIES,
    *study_layers.ENTRIES,
    *study_signal.ENTRIES,
    *study_smollm.ENTRIES,
    *study_e2e.ENTRIES,
    *study_tight.ENTRIES,
    *study_narrower.ENTRIES,
    *study_map.ENTRIES,
)


def find(name: str) -> Entry:
    """The entry of that name."""
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    guess = nearest(name, [entry.name for entry in ENTRIES])
    more = f"; did you mean {guess}?" if guess else ""
    raise InvalidArgument("entry", name, f"one of those that `plrvo reproduce --list` shows{more}")
