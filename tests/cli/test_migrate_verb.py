"""migrate: a rewritten file is checked before it is printed; faults end in one line."""

from __future__ import annotations

OLD = "# mine\nspeculator: {method: nextn, draft_len: 3}  # keep\n"


def test_the_result_is_valid_and_keeps_comments(specdec, tmp_path):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(OLD)
    done = specdec("migrate", str(old), "-o", str(new))
    assert done.code == 0 and "nextn is now mtp" in done.err
    assert (
        new.read_text() == "# mine\nschema_version: 1\nspeculative: {method: mtp, num_speculative_tokens: 3}  # keep\n"
    )
    assert specdec("validate", "--strict", str(new)).code == 0


def test_what_needs_a_person_is_an_error(specdec, tmp_path):
    (tmp_path / "new.yaml").write_text("schema_version: 7\nspeculative: {method: ngram}\n")
    newer = specdec("migrate", str(tmp_path / "new.yaml"))
    assert (newer.code, newer.out) == (1, "") and "schema_version" in newer.err
    (tmp_path / "typo.yaml").write_text("speculator: {method: nextn, num_speculatve_tokens: 3}\n")
    typo = specdec("migrate", str(tmp_path / "typo.yaml"))
    assert typo.code == 1 and "did you mean 'num_speculative_tokens'" in typo.err


def test_other_engines(specdec, tmp_path):
    flags = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--speculative-num-draft-tokens", "4",
             "--speculative-draft-model-path", "./head")  # fmt: skip
    done = specdec("migrate", "--from", "sglang", "-o", str(tmp_path / "run.yaml"), "--", *flags)
    assert done.code == 0, done.err
    assert specdec("validate", str(tmp_path / "run.yaml")).code == 0
    wrong = specdec("migrate", "--from", "sglang", "--", *flags[:5], "6")
    assert wrong.code == 1 and "not 6" in wrong.err


def test_faults_are_one_line(specdec, tmp_path):
    old = tmp_path / "old.yaml"
    old.write_text(OLD)
    for arguments in (
        (),
        (str(tmp_path / "none.yaml"),),
        (str(old), "-o", str(tmp_path / "no/such/new.yaml")),
        ("--", "--x"),
    ):
        done = specdec("migrate", *arguments)
        last = done.err.splitlines()[-1]
        assert done.code == 2 and "error" in last and "Traceback" not in done.err, arguments
