# SPDX-License-Identifier: Apache-2.0
"""What a run says about what it could not judge, and what waivers change."""

from __future__ import annotations

import pytest

WAIVER = """
[[waiver]]
query = "{query}"
issue = "someone/kernels#7"
reason = "{reason}"
kind = "{kind}"
library = "*"
expires = {expires}
"""


def waiver(query, kind="tolerate", expires="2099-12-31", reason="known"):
    """One entry of a waiver file."""
    return WAIVER.format(query=query, kind=kind, expires=expires, reason=reason)


def test_waivers(suites):
    """A tolerated failure is waived, quarantine isn't launched, and unexpected passes and expired waivers are red."""
    (suites.folder / "mine.toml").write_text(
        waiver("wrong:*.k32-random:cpu", reason="writes a constant")
        + waiver("hangs:*-m2.*:cpu", "quarantine", reason="never ends")
        + waiver("spills:*:*", expires="2020-01-01")
        + waiver("right:*-m9.*:*", reason="matches nothing")
        + waiver("raises:*-m2.*:*", reason="an error is not tolerated")
    )
    kernels = ["right", "wrong", "hangs", "spills", "raises"]
    ran = suites.run("-rxs", "--waivers", "mine.toml", "--require=hangs=2", kernels=kernels, tokens=[1, 2])
    verdicts = ran.verdicts()
    assert ran.outcomes() == {
        ("right", 1): "pass",
        ("right", 2): "pass",
        ("wrong", 1): "fail",  # an unexpected pass
        ("wrong", 2): "waived",
        ("hangs", 1): "pass",
        ("hangs", 2): "waived",
        ("spills", 1): "pass",
        ("spills", 2): "fail",
        ("raises", 1): "pass",
        ("raises", 2): "error",
    }
    assert "unexpected pass: someone/kernels#7 wrong:*.k32-random:cpu" in verdicts["wrong", 1].reason
    assert "writes a constant" in verdicts["wrong", 2].reason
    assert "1 of 16 elements" in verdicts["wrong", 2].reason
    assert verdicts["hangs", 2].reason.startswith("not launched, quarantined by someone/kernels#7")
    assert "expired after 2020-01-01" in verdicts["spills", 2].reason
    assert ran.code == 1
    for line in (
        "3 failed, 5 passed, 2 xfailed",
        "1 passed though a waiver says that they fail",
        "1 failed",
        "1 ended in an error",
        "--require hangs: 1 of 2 required judged",
        "planned 10 = 5 pass + 2 fail + 1 error + 2 waived",
    ):
        assert line in ran.output, line
    assert "right:*-m9.*:*" in ran.output, "one's own waiver that matches nothing is told"


def test_green_with_waived_failures(suites):
    """Waived failures alone leave the run green, however strict, and the last line counts them."""
    (suites.folder / "mine.toml").write_text(waiver("wrong:*-m2.*:cpu"))
    options = ("--waivers", "mine.toml", "--require=wrong:numerics=2", "--strict-verdicts")
    ran = suites.run(*options, kernels=["wrong"], tokens=[1, 2])
    assert ran.code == 0, ran.output
    assert "planned 2 = 1 pass + 1 waived" in ran.output
    assert ran.last_line == "slow 0  ambiguous 0  unsupported 0  not_run 0  waived 1"


def test_a_required_kernel_that_needs_a_gpu(suites):
    """Without a GPU, nothing is judged: green where nobody asked for it, red and with the reason where somebody did."""
    case = "--case=dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-readout"
    green = suites.run("--kernel=humming", case, "-rs")
    assert green.code == 0, green.output
    assert "planned 1 = 1 not_run" in green.output
    assert green.last_line == "slow 0  ambiguous 0  unsupported 0  not_run 1  waived 0"
    red = suites.run("--kernel=humming", case, "--require=humming", ledger="other")
    assert red.code == 1
    verdict = red.ledger.verdicts[0]
    assert verdict.outcome == "not_run"
    assert verdict.subject.device == "no_gpu"
    assert any(words in verdict.reason for words in ("NVML", "no GPU", "CUDA_VISIBLE_DEVICES")), verdict.reason
    assert "(mend: " in verdict.reason
    assert "--require humming: 0 of 1 required judged; first reasons: " in red.output
    assert "1 skipped" in red.output


def test_what_is_not_claimed(suites):
    """A case outside the claims is unsupported with the claim that it breaks, and is never launched."""
    case = "--case=dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-call_batch_invariant-random"
    ran = suites.run("--kernel=kernels_for_tests:aborts", case)
    assert [verdict.outcome for verdict in ran.ledger.verdicts] == ["unsupported"]
    assert "call option batch_invariant is not claimed" in ran.ledger.verdicts[0].reason
    assert "1 skipped" in ran.output
    assert ran.last_line == "slow 0  ambiguous 0  unsupported 1  not_run 0  waived 0"
    assert ran.code == 0


def test_collect_only(suites):
    """Listing names every subject and says what would be judged and why the rest not; nothing is written."""
    ran = suites.run("--collect-only", "-q", "--kernel=humming", kernels=["right"], tokens=[1, 2], ledger=None)
    assert ran.code == 0
    for m in (1, 2):
        case = f"dense-w_int8.channel.bf16-a_bf16-m{m}.n8.k32-random"
        assert f"test_output_keeps_the_contract[right:{case}:cpu]" in ran.output
        assert f"test_output_keeps_the_contract[humming:{case}:no_gpu]" in ran.output
    shown = suites.run("--collect-only", "--kernel=humming", kernels=["right"], tokens=[1, 2], ledger=None)
    assert "conformance plan: 4 subjects" in shown.output
    assert "2 right would be judged" in shown.output
    assert "2 humming unsupported: " in shown.output or "2 humming not_run: " in shown.output
    assert [path.name for path in suites.folder.iterdir() if path.name != ".benchmarks"] == []  # of another plugin


def test_the_default_ledger_and_k(suites):
    """Without --ledger a new folder below .conformance holds the run; -k narrows what is planned."""
    ran = suites.run("-k", "m2.n8", kernels=["right"], tokens=[1, 2], ledger=None)
    assert ran.code == 0
    assert "planned 1 = 1 pass" in ran.output
    assert [path.name for path in (suites.folder / ".conformance").glob("*/*")] == ["ledger.jsonl"]
    nothing = suites.run("-k", "m7.n8", kernels=["right"], tokens=[1, 2], ledger="none")
    assert nothing.code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not nothing.folder.exists()


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_the_suite_keeps_its_name_where_it_is_the_root(suites, workers):
    """Ids of items are relative to the root of the session, which may be the suite's own folder."""
    root = suites.suites
    ran = suites.run(workers, "--rootdir", root, "-c", "/dev/null", root, kernels=["right"], tokens=[1])
    assert [verdict.suite for verdict in ran.ledger.verdicts] == ["numerics"]
    assert ran.code == 0, ran.output


def test_all_suites_are_asked(suites):
    """``pytest suites`` plans each suite that has something to ask, and accounts for all of them."""
    everything = suites.suites.parent
    shown = suites.run("--collect-only", "-q", everything, kernels=["right"], tokens=[1], ledger=None)
    assert "test_numerics.py::test_output_keeps_the_contract[right:" in shown.output
    assert "test_performance.py::test_speed_keeps_the_baseline[right:" in shown.output
    assert "[nothing]" not in shown.output
    ran = suites.run(everything, kernels=["right"], tokens=[1])
    assert ran.code == 0
    assert {(verdict.suite, verdict.outcome) for verdict in ran.ledger.verdicts} == {
        ("numerics", "pass"),
        ("performance", "not_run"),
    }
