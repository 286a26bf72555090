import gzip
from pathlib import Path

import pytest

from nat.errors import DatasetError
from nat.plugins.datasets import read_csv, read_json, read_jsonl, read_parquet, read_xls


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize("text", ["0042", "1e3", "007", "null", "true", " ", "1_000", "ÄÖ 中 🎲"])
def test_text_stays_text_in_json_and_csv(tmp_path: Path, text: str):
    """No reader guesses the type of a text."""
    as_json = write(tmp_path / "a.json", f'[{{"id": "{text}"}}]')
    as_lines = write(tmp_path / "a.jsonl", f'{{"id": "{text}"}}\n')
    as_csv = write(tmp_path / "a.csv", f'id,n\n"{text}",1\n')
    assert read_json(as_json)[0]["id"] == text
    assert read_jsonl(as_lines)[0]["id"] == text
    assert read_csv(as_csv)[0]["id"] == text


def test_blank_lines_and_byte_order_mark_are_tolerated(tmp_path: Path):
    """Blank lines and byte order marks of editors are no data."""
    lines = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"id": "a"}\r\n\r\n{"id": "b"}\n\n')
    table = write(tmp_path / "a.csv", b"\xef\xbb\xbfid,answer\r\n1,x\r\n\r\n")
    listed = write(tmp_path / "a.json", b'\xef\xbb\xbf[{"id": "a"}]')
    assert [row["id"] for row in read_jsonl(lines)] == ["a", "b"]
    assert read_csv(table) == [{"id": "1", "answer": "x"}]
    assert read_json(listed) == [{"id": "a"}]


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path: Path):
    """Only a newline ends a JSON line; U+2028 and U+0085 are text."""
    path = write(tmp_path / "a.jsonl", '{"q": "one\u2028two\u0085three"}\n')
    assert read_jsonl(path) == [{"q": "one\u2028two\u0085three"}]


def test_all_broken_json_lines_are_named(tmp_path: Path):
    """The error has the line and the column of each broken line."""
    path = write(tmp_path / "a.jsonl", '{"id": 1}\n\n{"id" 2}\n[3]\n{"x": NaN}\n{"x": 1e999}\n')
    with pytest.raises(DatasetError) as caught:
        read_jsonl(path)
    text = str(caught.value)
    assert "line 3, column 7: not JSON: " in text
    assert "line 4: a list where an object was expected" in text
    assert "line 5: NaN is not JSON" in text
    assert "line 6: the number 1e999 is too large" in text


@pytest.mark.parametrize(
    ("value", "seen"),
    [("-" + "9" * 5000, "the number -9"), ("9" * 400, "the number 9"), ("[" * 10**5, "nested too deeply")],
)
def test_a_value_that_python_cannot_hold_is_a_broken_line(tmp_path: Path, value: str, seen: str):
    """Python refuses numbers of 4300 digits and deep nesting with errors of other kinds than those of broken JSON."""
    for read, text in ((read_jsonl, f'{{"x": {value}}}'), (read_json, f'[{{"x": {value}}}]')):
        with pytest.raises(DatasetError, match=seen):
            read(write(tmp_path / "a", text))


def test_a_json_list_given_as_json_lines_is_recognised(tmp_path: Path):
    """The hint names the type that would work."""
    path = write(tmp_path / "a.json", '{"id": 1}\n{"id": 2}\n')
    with pytest.raises(DatasetError, match=r"line 2, column 1: not JSON[\s\S]*_type: jsonl"):
        read_json(path)


def test_a_compressed_file_and_old_line_ends_are_read(tmp_path: Path):
    """Data sets come as .gz; some editors end lines by CR alone."""
    packed = write(tmp_path / "a.jsonl.gz", gzip.compress(b'{"id": 1}\n{"id": 2}\n'))
    assert read_jsonl(packed) == read_jsonl(write(tmp_path / "a.jsonl", '{"id": 1}\r{"id": 2}\r'))
    assert read_csv(write(tmp_path / "a.csv", "q,a\r1,2\r3,4\r")) == [{"q": "1", "a": "2"}, {"q": "3", "a": "4"}]


def test_an_object_over_several_lines_is_one_error(tmp_path: Path):
    """Printed prettily, each line of it would be broken."""
    with pytest.raises(DatasetError, match="line 3: its object goes on in the next lines") as caught:
        read_jsonl(write(tmp_path / "a.jsonl", '{"id": 1}\n\n{\n  "id": 2\n}\n'))
    assert str(caught.value).count("line") == 3


def test_a_list_inside_an_object_is_named(tmp_path: Path):
    """Exports of services wrap it; the error says where it is."""
    with pytest.raises(DatasetError, match=r"The list is under data\.items"):
        read_json(write(tmp_path / "a.json", '{"data": {"count": 1, "items": [{"id": 1}]}}'))


def test_csv_cells_may_hold_commas_quotes_line_breaks_and_much_text(tmp_path: Path):
    """CSV quoting is supported, and a cell may exceed the parser's default limit."""
    long = "x" * 200_000
    path = write(tmp_path / "a.csv", f'q,a\n"one, ""two""\r\nthree",{long}\n')
    assert read_csv(path) == [{"q": 'one, "two"\r\nthree', "a": long}]


def test_csv_rows_of_another_length_are_named(tmp_path: Path):
    """A row with a missing or an extra cell is an error with its line."""
    path = write(tmp_path / "a.csv", "q,a\n1,2\n1,2,3\n4\n")
    with pytest.raises(DatasetError, match=r"line 3: 3 cells for 2 columns[\s\S]*line 4: 1 cells"):
        read_csv(path)


def test_csv_needs_a_header_with_unique_names(tmp_path: Path):
    """Two columns of one name would hide one of them."""
    with pytest.raises(DatasetError, match="'q' more than once"):
        read_csv(write(tmp_path / "a.csv", "q,a,q\n"))
    with pytest.raises(DatasetError, match="has no header"):
        read_csv(write(tmp_path / "b.csv", ""))


@pytest.mark.parametrize("read", [read_json, read_jsonl, read_csv, read_parquet])
def test_missing_file_is_named(tmp_path: Path, read):
    """The error names the file that was looked for."""
    with pytest.raises(DatasetError, match="nowhere' does not exist"):
        read(tmp_path / "nowhere")


def test_parquet_keeps_the_types_it_declares(tmp_path: Path):
    """A text column of digits stays text, and a null in an integer column makes no floats."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": ["0042", "1e3"], "answer": pyarrow.array([7, None], type=pyarrow.int64())})
    parquet.write_table(table, tmp_path / "a.parquet")
    rows = read_parquet(tmp_path / "a.parquet")
    assert rows == [{"id": "0042", "answer": 7}, {"id": "1e3", "answer": None}]
    assert type(rows[0]["answer"]) is int


def test_missing_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Parquet is optional; without it the error says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DatasetError, match=r"pip install 'nat-finetuning-harness\[parquet\]'"):
        read_parquet(tmp_path / "a.parquet")


def workbook(path: Path, *rows) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for record in rows:
        book.active.append(record)
    book.create_sheet("notes").append(["not", "data"])
    book.save(path)
    return path


def test_the_first_sheet_of_a_workbook_is_a_table(tmp_path: Path):
    """Cells keep their types, an empty cell is None, and neither an empty row nor a column without a name is data."""
    path = workbook(tmp_path / "a.xlsx", ["id", None, "answer"], ["0042", "note", 7], [None] * 3, ["b"])
    assert read_xls(path) == [{"id": "0042", "answer": 7}, {"id": "b", "answer": None}]


def test_other_files_are_no_workbooks(tmp_path: Path):
    """The older binary format and text say how to save the file; a missing file is named."""
    pytest.importorskip("openpyxl")
    for name, data in (("a.xls", b"\xd0\xcf\x11\xe0"), ("a.xlsx", b"id,answer")):
        with pytest.raises(DatasetError, match=r"is not an Excel workbook \(\.xlsx\)\n.*Save it as \.xlsx"):
            read_xls(write(tmp_path / name, data))
    with pytest.raises(DatasetError, match="does not exist"):
        read_xls(tmp_path / "b.xlsx")
