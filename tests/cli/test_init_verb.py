"""init: the file it writes is valid for every method, also with each of its comments taken in; nothing is overwritten."""

from __future__ import annotations

import re

import pytest
import yaml

from specdec.config.records.registry import builtin

METHODS = list(builtin().records)


@pytest.mark.parametrize("method", METHODS)
def test_what_it_writes_is_valid(specdec, tmp_path, method):
    file = tmp_path / "run.yaml"
    assert specdec("init", str(file), "--method", method).code == 0
    checked = specdec("validate", str(file))
    assert (checked.code, checked.out) == (0, f"{file}: valid\n"), checked.out
    text = file.read_text()
    assert text.startswith("# yaml-language-server: $schema=")
    assert yaml.safe_load(text)["speculative"]["method"] == method


@pytest.mark.parametrize("method", METHODS)
def test_each_comment_can_be_taken_in(specdec, tmp_path, method):
    text = specdec("init", "-", "--method", method).out
    comments = re.findall(r"^  # \w+: .*$", text, re.M)
    assert comments or method in ("chain", "medusa", "mlp_speculator")
    for comment in comments:
        file = tmp_path / "run.yaml"
        file.write_text(text.replace(comment, comment.replace("# ", "", 1)))
        checked = specdec("validate", str(file))
        assert checked.code == 0, (comment, checked.out)


@pytest.mark.parametrize("name", ["./my model", "C:/x: y", "yes", "a'b\"c", "#1", "123", "1e3", "org/model-7B"])
def test_any_target_is_quoted(specdec, tmp_path, name):
    text = specdec("init", "-", "--target", name, "--method", "eagle3", "--model", name).out
    data = yaml.safe_load(text)
    assert data["target"]["model"] == data["speculative"]["model"] == name


def test_a_file_is_kept_unless_forced(specdec, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("mine\n")
    refused = specdec("init", str(file))
    assert (refused.code, file.read_text()) == (2, "mine\n") and "--force" in refused.err
    assert specdec("init", str(file), "--force").code == 0 and "method: ngram" in file.read_text()


def test_faults_are_one_line(specdec, tmp_path):
    unknown = specdec("init", str(tmp_path / "a.yaml"), "--method", "eagl3")
    assert unknown.code == 1 and "did you mean 'eagle3'" in unknown.err and not (tmp_path / "a.yaml").exists()
    nowhere = specdec("init", str(tmp_path / "no/such/folder/a.yaml"))
    assert nowhere.code == 2 and nowhere.err.count("\n") == 1


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_nothing_is_written_through_a_link(specdec, tmp_path, exists, force):
    victim, link = tmp_path / "victim", tmp_path / "run.yaml"
    if exists:
        victim.write_text("kept")
    link.symlink_to(victim)
    result = specdec("init", str(link), *force)
    assert result.code == 2 and "link" in result.err
    assert victim.exists() is exists and (not exists or victim.read_text() == "kept")
