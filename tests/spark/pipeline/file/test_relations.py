"""Tables that an SQL text reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.pipeline.file.relations import relations


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select * from orders", ["orders"]),
        ("SELECT * FROM Orders o JOIN customers AS c ON o.id = c.id", ["orders", "customers"]),
        ("select * from a, b as x, c where a.i = b.i", ["a", "b", "c"]),
        ("select * from a left outer join b using (i), c", ["a", "b", "c"]),
        ("select * from (select * from inner_one) t, other", ["inner_one", "other"]),
        ("select * from (a join b on a.i = b.i) join c", ["a", "b", "c"]),
        ("select * from a where x in (select x from b) and exists (select 1 from c)", ["a", "b", "c"]),
        ("select (select max(x) from b) as m from a", ["b", "a"]),
        ("select * from a union all select * from b except select * from c", ["a", "b", "c"]),
        ("with t as (select * from a), u as (select * from t) select * from t join u", ["a"]),
        ("with t (x, y) as (select * from a) select * from t", ["a"]),
        ("with orders as (select * from orders where x) select * from orders", ["orders"]),
        ("from orders |> where x > 1 |> join b on true |> extend a, c", ["orders", "b"]),
        ("table orders", ["orders"]),
        ("select * from f(table(orders))", ["orders"]),
        ("select * from `orders`", ["orders"]),
        ("select * from `we``ird`", ["we`ird"]),
        ("select * from stream orders", ["orders"]),
        ("select * from stream(orders)", ["orders"]),
        ("select * from a lateral view explode(a.xs) t as x", ["a"]),
        ("select * from a, lateral (select * from b)", ["a", "b"]),
        ("select * from a join lateral (select * from b) on true", ["a", "b"]),
        ("select * from a tablesample (10 percent), b", ["a", "b"]),
    ],
)
def test_a_table_stands_behind_from_and_join(sql: str, names: list[str]) -> None:
    assert list(relations(sql)) == names


@pytest.mark.parametrize(
    "sql",
    [
        "select extract(hour from a) from orders",
        "select trim(both 'x' from a), substring(a from 2 for 3) from orders",
        "select a is distinct from b, a is not distinct from c from orders",
        "select 'from a', \"join b\", r'from c\\' from orders",
        "select 'it''s from a', 'x\\' from b' from orders",
        "select 1 -- from a\n from orders /* join b */ /* from",
        "select a, b from orders group by a, b order by c",
        "select * from range(10), orders",
        "select * from spark_catalog.default.a, parquet.`/tmp/b`, orders",
        "select sum(x) over w from orders window w as (partition by a order by b)",
        "select `from`, x.`join` as y from orders",
    ],
)
def test_other_words_are_no_tables(sql: str) -> None:
    assert relations(sql) == ("orders",)


@pytest.mark.parametrize("sql", ["", "select 1", "select 1 from", ")))", "((from", "with", "values (1), (2)"])
def test_what_reads_nothing_has_none(sql: str) -> None:
    assert relations(sql) == ()


@given(st.text(alphabet=" \nabfFROMjoinselect,()'\"`*/-|>.;", max_size=60))
def test_any_text_has_an_answer(sql: str) -> None:
    assert all(name == name.lower() for name in relations(sql))
