"""The table-to-text data sets: their files, checksums and homes.

| name | licence | note |
|---|---|---|
| `e2e` | CC-BY-SA-4.0 | E2E NLG, 42,061 / 4,672 / 4,693 pairs |
| `webnlg2017` | CC-BY-NC-SA-4.0 | WebNLG challenge 2017, 6,940 / 872 / 1,862 entries |
| `dart` | MIT | DART 1.1.1, dev and test, 2,768 / 5,097 entries |
"""

from __future__ import annotations

from plrvo.tasks.sources import DataFile, DataSet, Layout

E2E_ARCHIVE, WEBNLG_ARCHIVE = "e2e-dataset.zip", "webnlg_challenge_2017_xml.tar.xz"
DART_DEV, DART_TEST = "dart-v1.1.1-full-dev.json", "dart-v1.1.1-full-test.xml"
# Inside the archive, with their sizes; another test file there has no references.
E2E_FILES = {
    "e2e-dataset/trainset.csv": 9_340_189,
    "e2e-dataset/devset.csv": 1_161_305,
    "e2e-dataset/testset_w_refs.csv": 1_310_822,
}
WEBNLG_TAR_LIMIT = 12_000_000

_DART_SUMS = {
    DART_DEV: (2_468_789, "56606eac12baa7f0ddb81c61890f9f1a95bace4df8f8989852786358fe5d2b88"),
    DART_TEST: (3_958_498, "4f6994d633030278798c114555549a13202780fe0d78ee2e7ac7dcce45a8e233"),
}

E2E = DataSet(
    "e2e",
    (
        Layout(
            "zip",
            (DataFile(E2E_ARCHIVE, 1_528_421, "1261064c01907af27e8cc39e0a29a81541f6ab69208c1cbfc1be95afbb49dfac"),),
            ("https://github.com/tuetschek/e2e-dataset/releases/download/v1.0.0/",),
        ),
    ),
)
WEBNLG = DataSet(
    "webnlg2017",
    (
        Layout(
            "tar.xz",
            (DataFile(WEBNLG_ARCHIVE, 559_160, "8c9aee3542248a37ee222d6b2f1626bc50a2c0a563da99f3c65c6163d9e54568"),),
        ),
    ),
)
DART = DataSet(
    "dart",
    (
        Layout("gz", tuple(DataFile(f"{name}.gz", *known, gzip=True) for name, known in _DART_SUMS.items())),
        Layout(
            "plain",
            tuple(DataFile(name, *known) for name, known in _DART_SUMS.items()),
            ("https://raw.githubusercontent.com/Yale-LILY/dart/master/data/v1.1.1/",),
        ),
    ),
)
