"""The test of src/plrvo/X/Y.py is tests/X/test_Y.py, with an aspect behind its name if it has one, or is told here."""

from pathlib import Path

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src" / "plrvo"
TRIVIAL = {"__init__", "__main__", "version"}  # nothing that could be wrong by itself

# Several modules that do one thing together, and the test of that thing: (test, modules of one folder, why).
TOGETHER = [
    (
        "accounting/correlated/test_correlation.py",
        "accounting/correlated: toeplitz tree fitting",
        "every strategy, and what is fitted, against every pattern of visits",
    ),
    (
        "accounting/test_profile.py",
        "accounting: contour sampled_profile step_profile",
        "the parts of a profile, and its use",
    ),
    (
        "accounting/test_sampled_gaussian.py",
        "accounting: loss_distribution losses window",
        "what composes Gaussian steps, and others",
    ),
    (
        "accounting/test_selection.py",
        "accounting/selection: count everything negative_binomial poisson search trial",
        "every number of trials against the exact law of the best of them",
    ),
    ("accounting/test_events.py", "accounting: adjacency", "two lists of names, which events carry"),
    ("audit/test_losses.py", "audit: canary laws quantised", "the law of a loss is that of a canary under a noise"),
    ("audit/test_mechanism.py", "audit: shuffled verdict", "what an attack says of claims that hold and that do not"),
    ("audit/test_ensemble.py", "audit: models", "trained against their own gradients by autograd"),
    ("audit/test_selftest.py", "audit: checkup", "the command runs both"),
    ("tasks/test_audited.py", "audit: planted example_canaries gradient_canaries", "canaries in runs of real tasks"),
    ("hostile/test_archives.py", "audit: arrays", "files that lie about themselves"),
    ("records/test_receipt.py", "audit: receipt", "a receipt is recomputed there"),
    ("budget/test_store.py", "budget: events", "a list of events, as a file keeps it"),
    ("budget/test_account.py", "budget: charge entry", "what an account has, and gives to a run"),
    (
        "cli/test_audit.py",
        "cli: audit_clipbkd audit_common audit_mechanism audit_one_run",
        "the one command `plrvo audit`",
    ),
    ("cli/test_audit.py", "audit: plot", "an option of the command"),
    (
        "cli/test_account.py",
        "cli: calibrate noise_options options show",
        "options and tables that `account` and `calibrate` share",
    ),
    ("cli/test_design.py", "cli: design_result", "what the command says"),
    ("cli/test_mistakes.py", "cli: usage", "one line for whatever is typed wrongly"),
    ("report/test_page_command.py", "cli: report", "beside the runs that it shows"),
    ("explore/test_page_browser.py", "cli: explore", "the command serves the page"),
    ("explore/test_fragments.py", "explore: pictures", "charts are fragments too"),
    ("explore/test_page_browser.py", "explore: controls", "parts of the one page"),
    ("paper/test_reproduce.py", "cli: reproduce", "beside the entries that it runs"),
    ("audit/test_selftest.py", "cli: selftest", "beside what it runs"),
    ("end_to_end/test_train.py", "cli: train_options train_result", "as users run it, in processes of their own"),
    ("cli/test_tune.py", "cli: tune_result", "what the command says"),
    ("tasks/tuning/test_run.py", "records: searched", "a receipt of a search, and what contradicts it"),
    ("tasks/tuning/test_run.py", "tasks/tuning: plans release state trial", "parts of one search"),
    ("tasks/tuning/test_tuning.py", "tasks/tuning: space", "what a search is asked for"),
    ("designer/test_solver.py", "designer: problem", "what the solver is asked"),
    (
        "noise/test_base_density.py",
        "noise: gaussian",
        "`test_base_*` asks of every noise what a noise can do; this one has nothing else",
    ),
    ("noise/test_base_arguments.py", "noise: parameter", "the arguments that options become"),
    (
        "noise/test_seeds.py",
        "noise: seed_families weibull",
        "every seed, as the noises ask for it; `test_seeds_*` has the ends of their parameters",
    ),
    (
        "noise/test_sampling_tails.py",
        "noise: mixtures normals",
        "how words become noise, with the probability of every word",
    ),
    ("noise/test_exponentials.py", "noise: spans", "filled by threads, the same whatever their number"),
    ("noise/test_grid.py", "noise: integers", "noise on a grid"),
    ("noise/test_keystream.py", "noise: processor", "the same bits, whatever the processor can do"),
    ("noise/test_rounding.py", "noise: refine", "the draws that rounding does not decide"),
    ("noise/test_functions.py", "noise: quadrature", "integrals with known values"),
    (
        "paper/test_vision_entries.py",
        "paper: cnn cnn_recipe cnn_tables convergence dependency fair ftrl snr utility vit",
        "tables and figures of images: each runs, and prints what the paper prints",
    ),
    (
        "paper/test_studies.py",
        "paper: correlated study_batches study_correlated study_e2e study_layers study_map study_narrower "
        "study_scattering study_smollm study_sst2 study_tight tiny",
        "studies: each runs, and goes on where it stopped",
    ),
    (
        "paper/test_search_space_figures.py",
        "paper: mnli search_space_edge search_space_region",
        "figures of one setting",
    ),
    ("paper/test_reproduce.py", "paper: document drawing entry flags", "the framework of all entries"),
    ("paper/test_catalog.py", "paper: analytic", "every entry that trains nothing runs"),
    (
        "records/test_consistency.py",
        "records: beside checkpoint claims derived metrics opened setting",
        "what a receipt says more than once, and files beside it",
    ),
    ("tasks/test_job.py", "records: asked choices", "what a job asks for, field by field"),
    ("end_to_end/test_side_channels.py", "records: folder", "names of files, all of which are looked through"),
    (
        "report/test_page.py",
        "report: charts coverage curves densities figures",
        "parts of the one page",
    ),
    ("report/test_loading.py", "report: auditing runs", "what a page can be about"),
    ("tasks/test_job.py", "tasks: resolved", "a job made ready"),
    ("audit/test_clipbkd.py", "audit: data", "the data set that it poisons"),
    ("cli/test_audit.py", "tasks: poisoned", "data and poison of `plrvo audit clipbkd`"),
    ("tasks/test_experiment.py", "tasks: kept preset evaluation settings", "what an experiment is given, and keeps"),
    ("tasks/test_trainer_watched.py", "tasks: trainer_code", "whose code runs in a step"),
    ("tasks/test_trainer_kept.py", "tasks: releases trainer_callbacks", "what a trainer, as a task, counts as shown"),
    ("tasks/test_defaults.py", "tasks/text: recipes", "what is done by default, before anything is loaded"),
    ("tasks/test_defaults.py", "tasks/tables: recipes", "what is done by default, before anything is loaded"),
    ("tasks/test_sources.py", "tasks: web", "where data comes from"),
    ("tasks/text/test_trainable.py", "tasks: transformer", "models made fit for per-example gradients"),
    ("tasks/tables/test_data.py", "tasks/tables: catalog formats", "files of tables"),
    ("tasks/tables/test_models.py", "tasks/tables: llama2c", "one of the formats of a model"),
    (
        "tasks/tables/test_metrics.py",
        "tasks/tables/metrics: alignment base bleu cider meteor nist rouge tokens",
        "all metrics against each other's tools, and on the same texts",
    ),
    ("tasks/text/test_data.py", "tasks/text: catalog", "files of texts"),
    ("tasks/text/test_models.py", "tasks/text: features tokens", "what goes into a model and comes out"),
    ("hostile/test_model_folders.py", "tasks/text: hub", "data sets by their name, or folders that want to run code"),
    ("tasks/vision/test_data.py", "tasks/vision: catalog", "files of images"),
    (
        "tasks/vision/test_features.py",
        "tasks/vision: efficientnet extracted",
        "the network behind the features, and their cache",
    ),
    ("tasks/vision/test_scattered.py", "tasks/vision: recipes", "how a model on these features is trained"),
    ("tasks/vision/test_models.py", "tasks/vision: resnet task vit", "every model of the catalog, as a task has it"),
    (
        "misuse/test_catalogue.py",
        "training: descendants elsewhere factors layout loss_form loss_hooks operations probe recording "
        "state unchanged watch",
        "what they refuse is the catalogue of misuses, in every mode",
    ),
    ("training/test_checkpoint_repacked.py", "training: checkpoint_checks", "checkpoints that are packed again"),
    ("training/test_engine.py", "training: accountant unwrap", "an engine counts its steps"),
    ("training/test_alone.py", "training: bound", "what binds a module to one engine, in every mode"),
    ("training/test_batches.py", "training: private_loader", "what data sets and collate functions may give"),
    ("training/test_opacus_arguments.py", "training/clipping: mode", "one of the arguments"),
    ("cli/test_lazy.py", "cli: listed", "the table of commands, beside the commands"),
    (
        "cli/test_mistakes_without_torch.py",
        "tasks: beforehand choices",
        "mistakes in the words of a run, told without torch",
    ),
    ("cli/test_mistakes_without_torch.py", "tasks/text: words", "mistakes in the words of a run, told without torch"),
    ("cli/test_mistakes_without_torch.py", "tasks/vision: words", "mistakes in the words of a run, told without torch"),
    (
        "cli/test_mistakes_without_torch.py",
        "tasks/tuning: beforehand",
        "mistakes in the words of a run, told without torch",
    ),
    ("training/test_loop.py", "training: plain", "the loop without noise"),
    (
        "training/clipping/test_module.py",
        "training/clipping: contributions convolution optimizer tap",
        "clipped sums against a loop over examples",
    ),
    (
        "training/ftrl/test_optimizer.py",
        "training/ftrl: order setup stream",
        "a correlated run: its noise, its order, and that it can go on",
    ),
]


def modules() -> list[str]:
    found = (path.relative_to(SOURCES).with_suffix("").as_posix() for path in SOURCES.rglob("*.py"))
    return sorted(name for name in found if name.rpartition("/")[2] not in TRIVIAL)


def has_a_test_of_its_name(module: str) -> bool:
    folder, _, name = module.rpartition("/")
    return any((TESTS / folder).glob(f"test_{name}.py")) or any((TESTS / folder).glob(f"test_{name}_*.py"))


def told() -> list[str]:
    names = []
    for _, listed, _ in TOGETHER:
        folder, _, rest = listed.partition(": ")
        names += [f"{folder}/{name}" for name in rest.split()]
    return names


def test_every_module_has_a_test_by_its_name_or_is_told_with_a_reason():
    missing = [module for module in modules() if not has_a_test_of_its_name(module) and module not in told()]
    assert not missing, "write tests/X/test_Y.py, or say in TOGETHER which test is theirs and why"


def test_what_is_told_is_true():
    assert len(told()) == len(set(told()))
    assert not set(told()) - set(modules()), "these modules are gone"
    assert not [module for module in told() if has_a_test_of_its_name(module)], "these have a test by their name now"
    assert not [test for test, _, _ in TOGETHER if not (TESTS / test).is_file()], "these tests are gone"
    assert all(why for _, _, why in TOGETHER)
