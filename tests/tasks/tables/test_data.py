import gzip
import io
import lzma
import tarfile
import zipfile
from dataclasses import replace

import pytest

from plrvo.tasks.archive import BadArchive, untar_ending, unxz, unzip
from plrvo.tasks.sources import data_folder
from plrvo.tasks.tables import catalog
from plrvo.tasks.tables.data import Split, load_tables, spread, training_data
from plrvo.tasks.tables.formats import Entry, dart_json_entries, e2e_entries, e2e_line, xml_entries
from plrvo.validate import InvalidArgument

BENCHMARK = """<benchmark><entries><entry category="Airport" eid="Id1" size="2">
  <originaltripleset><otriple>never | read | this</otriple></originaltripleset>
  <modifiedtripleset>
    <mtriple>Aarhus_Airport | cityServed | "Aarhus, Denmark"</mtriple>
    <mtriple>Aarhus_Airport | runwayLength | 2777.0</mtriple>
  </modifiedtripleset>
  <lex comment="good" lid="Id1">Aarhus Airport
    serves Aarhus.</lex>
  <lex comment="good" lid="Id2">Aarhus is served.</lex>
  <lex comment="bad" lid="Id3"></lex>
</entry></entries></benchmark>"""


def zipped(**files: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "entries", "pairs"),
    [
        ("e2e", (4862, 547, 630), (42_061, 4_672, 4_693)),
        ("webnlg", (6_940, 872, 1_862), (18_102, 2_268, 4_928)),
        ("dart", (0, 2_768, 5_097), (0, 6_980, 12_551)),
    ],
)
def test_the_data_sets_have_their_published_sizes(name, entries, pairs, data_dir):
    data = load_tables(name, data_dir)
    splits = (data.train, data.dev, data.test)
    assert tuple(len(split.entries) for split in splits) == entries
    assert tuple(len(split.pairs) for split in splits) == pairs
    assert "from --data-dir" in data.source
    assert all(entry.table and all(entry.references) for split in splits for entry in split.entries)
    assert str(data_dir) not in data.source


@pytest.mark.data
def test_e2e_is_grouped_by_table(data_dir):
    data = load_tables("e2e", data_dir)
    first = data.test.entries[0]
    assert first.table == "name : Blue Spice | eatType : coffee shop | area : city centre"
    assert first.references[1] == "Blue Spice is a coffee shop in city centre."
    assert len({entry.table for entry in data.test.entries}) == 630
    assert data.train.most_references == 46


@pytest.mark.data
def test_dart_trains_on_webnlg_and_says_so(data_dir):
    data = training_data("dart", data_dir)
    assert data.train == load_tables("webnlg", data_dir).train
    assert data.test == load_tables("dart", data_dir).test
    assert data.source == "training: webnlg2017 from --data-dir; test: dart from --data-dir"


@pytest.mark.data
def test_dart_is_the_same_with_and_without_compression(data_dir, tmp_path):
    folder = tmp_path / "dart"
    folder.mkdir()
    for name in (catalog.DART_DEV, catalog.DART_TEST):
        (folder / name).write_bytes(gzip.decompress((data_dir / "dart" / f"{name}.gz").read_bytes()))
    plain = load_tables("dart", tmp_path)
    assert plain == replace(load_tables("dart", data_dir), source=plain.source)


def test_e2e_rows_of_one_table_come_together():
    content = (
        'mr,ref\r\n"name[A], near[B, C]",First  text.\r\nname[D],Other.\r\n"name[A], near[B, C]","Second, text."\r\n'
    )
    assert e2e_entries(content.encode()) == [
        Entry("name : A | near : B, C", ("First text.", "Second, text.")),
        Entry("name : D", ("Other.",)),
    ]


@pytest.mark.parametrize("meaning", ["", "name", "name[A], near", "[A]", "name[A]]", "name[A] x"])
def test_what_is_no_meaning_representation_is_refused(meaning):
    with pytest.raises(InvalidArgument, match=r"attribute\[value\]"):
        e2e_line(meaning)


def test_xml_gives_modified_triples_and_written_texts():
    line = "Aarhus Airport : cityServed : Aarhus, Denmark | Aarhus Airport : runwayLength : 2777.0"
    assert xml_entries(BENCHMARK.encode()) == [Entry(line, ("Aarhus Airport serves Aarhus.", "Aarhus is served."))]


def test_json_gives_the_same_form():
    content = b'[{"tripleset": [["a_b", "R", "c"]], "annotations": [{"text": "A b."}, {"text": " "}]}]'
    assert dart_json_entries(content) == [Entry("a b : R : c", ("A b.",))]


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
    ],
    ids=["bomb", "file"],
)
def test_an_xml_file_with_entities_is_refused(declaration):
    with pytest.raises(ValueError, match="declares entities"):
        xml_entries((declaration + BENCHMARK.replace("Aarhus is", "&a; is")).encode())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BENCHMARK[:-5], "not an XML file"),
        (BENCHMARK.replace(" | 2777.0", ""), "subject | relation | object"),
        (BENCHMARK.replace("<lex", "<text").replace("</lex", "</text"), "without a text"),
    ],
)
def test_a_broken_benchmark_is_named(content, reason):
    with pytest.raises(ValueError, match=reason.replace("|", r"\|")):
        xml_entries(content.encode())


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"mr,ref\nname[A]\n"])
def test_a_broken_csv_is_refused(content):
    with pytest.raises(ValueError, match="csv"):
        e2e_entries(content)


def test_unknown_and_absent_data_sets_are_named(tmp_path):
    with pytest.raises(InvalidArgument, match="one of e2e, dart, webnlg"):
        load_tables("totto")
    with pytest.raises(InvalidArgument, match=r"e2e-dataset\.zip.*looked at"):
        load_tables("e2e", tmp_path)
    assert not data_folder().exists()


def test_a_changed_archive_is_refused(tmp_path):
    (tmp_path / "e2e").mkdir()
    (tmp_path / "e2e" / catalog.E2E_ARCHIVE).write_bytes(zipped(**{"e2e-dataset/trainset.csv": b"mr,ref\n"}))
    with pytest.raises(InvalidArgument, match="checksum"):
        load_tables("e2e", tmp_path)


def test_a_subset_is_spread_and_depends_on_its_size_alone():
    entries = [Entry(str(i), ("x",)) for i in range(630)]
    chosen = spread(entries, 100)
    assert len(chosen) == len(set(chosen)) == 100
    assert chosen[-1].table == "623"
    assert spread(entries, None) == spread(entries, 10_000) == entries


def test_the_fingerprint_is_of_the_texts_and_their_order():
    split = Split((Entry("a", ("x", "y")), Entry("b", ("z",))))
    assert split.fingerprint == Split((Entry("a", ("x",)), Entry("a", ("y",)), Entry("b", ("z",)))).fingerprint
    assert split.fingerprint != Split((Entry("a", ("y", "x")), Entry("b", ("z",)))).fingerprint
    assert Split((Entry("a", ("x", "y")), Entry("a", ("z",)))).most_references == 3


def test_unzip_gives_the_members_asked_for():
    content = zipped(a=b"abc", b=b"other")
    assert unzip(content, {"a": 3}) == {"a": b"abc"}
    for sizes, reason in (({"a": 4}, "not a file of 4"), ({"a": 2}, "not a file of 2"), ({"c": 1}, "lacks c")):
        with pytest.raises(BadArchive, match=reason):
            unzip(content, sizes)
    for broken in (b"", b"text", content[:-10]):
        with pytest.raises(BadArchive):
            unzip(broken, {"a": 3})
    with pytest.raises(BadArchive, match="outside its folder"):
        unzip(zipped(**{"../a": b"abc"}), {"a": 3})


def test_a_zip_bomb_is_read_to_its_declared_size_only():
    with pytest.raises(BadArchive, match="not a file of 1,000"):
        unzip(zipped(a=bytes(50_000_000)), {"a": 1000})


def test_unxz_has_a_limit():
    assert unxz(lzma.compress(b"abc"), 3) == b"abc"
    for broken, reason in (
        (b"", "not a whole"),
        (b"text", "not a whole"),
        (lzma.compress(bytes(1000))[:-8], "not a whole"),
        (lzma.compress(bytes(50_000_000)), "more than 1,000"),
    ):
        with pytest.raises(BadArchive, match=reason):
            unxz(broken, 1000)


def test_untar_ending_leaves_links_and_other_names_alone():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, kind in (("d/b.xml", tarfile.REGTYPE), ("d/a.xml", tarfile.REGTYPE), ("d/c.xml", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        archive.addfile(tarfile.TarInfo("d/readme"))
    assert untar_ending(file.getvalue(), ".xml") == {"d/a.xml": b"", "d/b.xml": b""}
