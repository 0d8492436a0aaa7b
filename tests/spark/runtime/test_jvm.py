"""The start of the JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.runtime import home, java, jvm


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> home.SparkHome:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    (tmp_path / "spark" / "conf").mkdir(parents=True)
    return home.SparkHome(root=tmp_path, spark=tmp_path / "spark", java=tmp_path / "java")


def started(place: home.SparkHome, **config: str) -> list[str]:
    found = java.Java(home=place.java, version="17.0.1", origin="PATH")
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return jvm.command(found, place, settings, place.root / "properties", quick=False)


def test_no_setting_stands_on_the_command_line(place: home.SparkHome) -> None:
    assert not any("secret" in word for word in started(place, spark_hadoop_fs_s3a_secret_key="secret"))


def test_the_users_defaults_are_heeded(place: home.SparkHome) -> None:
    (place.spark / "conf" / "spark-defaults.conf").write_text(
        "# ours\nspark.driver.memory  3g\nspark.driver.extraJavaOptions=-Da=b '-Dc=d e'\n"
    )
    words = started(place)
    assert {"-Xmx3g", "-Da=b", "-Dc=d e"} <= set(words)
    assert "-Xmx2g" in started(place, spark_driver_memory="2g")


def test_the_memory_of_the_environment_is_heeded(place: home.SparkHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "5g")
    assert "-Xmx5g" in started(place)


def test_the_environment_can_have_every_session_quick(place: home.SparkHome, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = "-XX:TieredStopAtLevel=1"
    monkeypatch.delenv(jvm.QUICK, raising=False)
    assert quick not in started(place)
    monkeypatch.setenv(jvm.QUICK, "1")
    assert quick in started(place)


def test_settings_are_written_as_java_reads_them() -> None:
    text = jvm.properties({"spark.master": "local[2]", "spark.a": "x = y\\z: é\n"})
    assert text.splitlines()[0] == "spark.master=local[2]"
    assert text.splitlines()[1] == "spark.a=x\\u0020\\u003d\\u0020y\\u005cz\\u003a\\u0020\\u00e9\\u000a"
