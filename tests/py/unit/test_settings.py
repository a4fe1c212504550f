from pathlib import Path

import pytest

from oml import settings
from oml.errors import UsageError


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in settings.Settings.model_fields:
        monkeypatch.delenv(f"OML_{name.upper()}", raising=False)
    monkeypatch.delenv("OML_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_without_file_or_variables_the_defaults_hold() -> None:
    found = settings.load()
    assert found.dsn is None
    assert found.lake_url is None
    assert found.lake_storage_options == {}
    assert (found.batch_rows, found.batch_bytes) == (50_000, 64 * 1024 * 1024)
    assert (found.poll_interval_s, found.cut_timeout_s) == (0.25, 10.0)
    assert (found.deployment_id, found.signer_keys, found.signer_users) == (None, (), None)
    assert (found.signer_socket, found.signer_connections) == ("/run/oml/omld.sock", 500)


def test_the_file_in_the_working_directory_is_read() -> None:
    Path("oml.toml").write_text(
        'dsn = "dbname=oml"\nbatch_rows = 7\n[lake_storage_options]\nAWS_REGION = "x"\n'
    )
    found = settings.load()
    assert found.dsn == "dbname=oml"
    assert found.batch_rows == 7
    assert found.lake_storage_options == {"AWS_REGION": "x"}


def test_a_variable_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("oml.toml").write_text("batch_rows = 7\n")
    monkeypatch.setenv("OML_BATCH_ROWS", "8")
    monkeypatch.setenv("OML_LAKE_STORAGE_OPTIONS", '{"AWS_REGION": "y"}')
    found = settings.load()
    assert found.batch_rows == 8
    assert found.lake_storage_options == {"AWS_REGION": "y"}


def test_oml_config_names_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("cut_timeout_s = 3\n")
    Path("oml.toml").write_text("cut_timeout_s = 4\n")
    monkeypatch.setenv("OML_CONFIG", str(other))
    assert settings.load().cut_timeout_s == 3


def test_a_named_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OML_CONFIG", "nowhere.toml")
    with pytest.raises(UsageError, match=r"nowhere\.toml"):
        settings.load()


def test_an_unknown_key_of_the_file_is_named() -> None:
    Path("oml.toml").write_text("batch_row = 7\n")
    with pytest.raises(UsageError, match="batch_row: unknown setting") as caught:
        settings.load()
    assert caught.value.exit_code == 2
    assert "batch_rows" in (caught.value.hint or "")


def test_a_file_that_is_not_toml_is_named() -> None:
    Path("oml.toml").write_text("batch_rows ==\n")
    with pytest.raises(UsageError, match=r"cannot read oml\.toml"):
        settings.load()


@pytest.mark.parametrize("name", ["batch_rows", "batch_bytes", "poll_interval_s", "cut_timeout_s"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_bad_number_names_its_key(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"OML_{name.upper()}", value)
    with pytest.raises(UsageError, match=name):
        settings.load()


@pytest.mark.parametrize("text", ['{"AWS_SECRET_ACCESS_KEY": 77003', '{"a": 77003}', "77003"])
def test_no_message_repeats_a_value(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OML_LAKE_STORAGE_OPTIONS", text)
    with pytest.raises(UsageError, match="lake_storage_options") as caught:
        settings.load()
    assert "77003" not in str(caught.value)


def test_secrets_are_not_in_the_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OML_DSN", "password=77003")
    monkeypatch.setenv("OML_LAKE_STORAGE_OPTIONS", '{"AWS_SECRET_ACCESS_KEY": "77003"}')
    assert "77003" not in repr(settings.load())


def test_lists_of_the_signer_are_read_from_the_file_and_from_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("oml.toml").write_text(
        'deployment_id = "0190a7b6-7d3c-7e1f-8a2b-3c4d5e6f7a8b"\n'
        'signer_keys = ["file:/etc/omld/one.key", "vault:transit/oml"]\n'
        'signer_users = ["postgres", 1000]\n'
    )
    found = settings.load()
    assert str(found.deployment_id) == "0190a7b6-7d3c-7e1f-8a2b-3c4d5e6f7a8b"
    assert found.signer_keys == ("file:/etc/omld/one.key", "vault:transit/oml")
    assert found.signer_users == ("postgres", 1000)
    monkeypatch.setenv("OML_SIGNER_KEYS", '["file:/etc/omld/two.key"]')
    monkeypatch.setenv("OML_SIGNER_USERS", "[]")
    found = settings.load()
    assert (found.signer_keys, found.signer_users) == (("file:/etc/omld/two.key",), ())


def test_a_list_that_is_no_json_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OML_SIGNER_KEYS", "file:/etc/omld/one.key")
    with pytest.raises(UsageError) as caught:
        settings.load()
    assert "signer_keys" in str(caught.value)
    assert caught.value.hint and "JSON" in caught.value.hint
