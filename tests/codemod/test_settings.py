"""The `[tool.actor-wg]` table: found, read, and refused with one line."""

from __future__ import annotations

import pytest

from actor_wg_codemod.settings import Settings, SettingsError, load


def settings_of(folder, text):
    (folder / "pyproject.toml").write_text(text)
    return load(folder)


def test_every_setting(tmp_path):
    assert settings_of(
        tmp_path,
        """
        [tool.actor-wg]
        select = ["awg0", "AWG902"]
        ignore = ["AWG003"]
        exclude = ["legacy/*"]
        verl-roots = ["third_party.verl"]
        naming = true
        """,
    ) == Settings(
        select=("AWG0", "AWG902"),
        ignore=("AWG003",),
        exclude=("legacy/*",),
        verl_roots=("third_party.verl",),
        naming=True,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[tool.other]\n",
        "# actor-wg\n[project]\nname = 'x'\n",
        "[tool.actor-wg]\n",
        "not toml [",
    ],
)
def test_without_the_table_everything_has_its_default(tmp_path, text):
    assert settings_of(tmp_path, text) == Settings()
    assert load(tmp_path / "no/such/folder") == Settings()


def test_the_nearest_table_counts_and_the_checkout_is_the_limit(tmp_path):
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.actor-wg]\nnaming = true\n")
    (tmp_path / "a/b/pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load(tmp_path / "a/b/c").naming
    (tmp_path / "a/pyproject.toml").write_text("[tool.actor-wg]\n")
    assert not load(tmp_path / "a/b/c").naming
    (tmp_path / "a/pyproject.toml").unlink()
    (tmp_path / "a/.git").mkdir()
    assert not load(tmp_path / "a/b/c").naming


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("selct = []", "tool.actor-wg.selct is not a setting; the settings are select, ignore"),
        ("select = 'AWG001'", "tool.actor-wg.select must be a list of strings, not a string"),
        ("ignore = [1]", "tool.actor-wg.ignore must be a list of strings, not a list of other"),
        ("exclude = {}", "tool.actor-wg.exclude must be a list of strings, not a table"),
        ("naming = 'yes'", "tool.actor-wg.naming must be true or false, not a string"),
        ("naming = 1", "tool.actor-wg.naming must be true or false, not a number"),
        ("select = ['E501']", "tool.actor-wg.select: unknown code 'E501'"),
        ("verl-roots = ['a/b']", "tool.actor-wg.verl-roots: 'a/b' is not an import path"),
        ("naming = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, text, reason):
    with pytest.raises(SettingsError) as caught:
        settings_of(tmp_path, f"[tool.actor-wg]\n{text}\n")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/pyproject.toml: ")
    assert reason in message


def test_a_table_that_is_none_and_bytes_that_are_not_text(tmp_path):
    with pytest.raises(SettingsError, match="must be a table, not a number"):
        settings_of(tmp_path, "[tool]\nactor-wg = 1\n")
    (tmp_path / "pyproject.toml").write_bytes(b"# actor-wg \xff\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load(tmp_path)
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "pyproject.toml").mkdir()
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        load(tmp_path)
