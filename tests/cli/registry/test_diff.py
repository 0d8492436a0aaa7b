"""`penstock schema diff`: two schemas side by side, line by line."""

from __future__ import annotations

from penstock.cli.registry.diff import DiffRow, schema_lines, side_by_side


def test_json_is_laid_out_anew_so_that_spaces_make_no_difference() -> None:
    written = '{"type":"record",  "name":"A",\n"fields":[]}'
    assert schema_lines(written, "AVRO") == schema_lines('{"type": "record", "name": "A", "fields": []}', "AVRO")
    assert schema_lines(written, "AVRO")[1] == '  "type": "record",'
    assert schema_lines('{"title": "Größe"}', "JSON")[1] == '  "title": "Größe"'


def test_what_is_no_json_stays_as_it_is_but_for_what_would_move_the_cursor() -> None:
    assert schema_lines("message A {\n\tint32 a = 1; // \x1b[31mred\n}\n", "PROTOBUF") == [
        "message A {",
        r"    int32 a = 1; // \x1b[31mred",
        "}",
    ]
    assert schema_lines('{"torn', "JSON") == ['{"torn']
    assert schema_lines("", "STRING") == []


def test_each_line_stands_beside_its_counterpart() -> None:
    left = ["a", "b", "c", "d"]
    right = ["a", "B", "c", "d", "e"]
    assert list(side_by_side(left, right)) == [
        DiffRow("a", " ", "a"),
        DiffRow("b", "|", "B"),
        DiffRow("c", " ", "c"),
        DiffRow("d", " ", "d"),
        DiffRow("", ">", "e"),
    ]
    assert DiffRow("b", "<", "") in list(side_by_side(["a", "b"], ["a"]))


def test_lines_far_from_any_difference_are_left_out() -> None:
    same = [str(number) for number in range(30)]
    rows = list(side_by_side(["x", *same, "y"], ["X", *same, "Y"]))
    assert [row.left for row in rows] == ["x", "0", "1", "2", "...", "27", "28", "29", "y"]


def test_equal_schemas_have_no_rows() -> None:
    assert list(side_by_side(["a"], ["a"])) == []
