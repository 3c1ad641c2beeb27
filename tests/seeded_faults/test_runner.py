# SPDX-License-Identifier: Apache-2.0
"""The runner on a library of a few lines: what it catches, misses, leaves out, and how it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from humming_conformance.campaign.plan import RunOptions, Task, make_plan
from humming_conformance.devices import Device
from humming_conformance.protocols import Support
from tests.seeded_faults import runner
from tests.seeded_faults.__main__ import main
from tests.seeded_faults.fault import Fault
from tests.seeded_faults.judging import Target
from tests.seeded_faults.report import MARKER, Row, render, row
from tests.seeded_faults.results import Results, ResultsError
from tests.seeded_faults.runner import Campaign, Settings
from tests.seeded_faults.toy_kernel import EPILOGUE

KERNEL = "tests.seeded_faults.toy_kernel:toy"
ONE_ROW, THREE_ROWS, WRONG_ANYWAY = (
    f"dense-w_int8.channel.bf16-a_bf16-{shape}-random" for shape in ("m1.n16.k32", "m3.n16.k32", "m1.n24.k32")
)
CASES = (ONE_ROW, THREE_ROWS, WRONG_ANYWAY)


def _fault(name: str, text: str, replacement: str, m: int = 1) -> Fault:
    return Fault(name, "layout", "epilogue.py", text, replacement, "Tries.", lambda case: case.problem.m == m)


ROWS_DOUBLED = _fault("rows_doubled", "rows[:first] *= STEP", "rows[1:first] *= 2 * STEP", m=3)
HINTED_WRONGLY = _fault("hinted_wrongly", "rows[:first] *= STEP", "rows[2:first] *= 2 * STEP")
HARMLESS = _fault("harmless", "STEP = 1", "STEP = True")
CRASHES = _fault("crashes", "    first = rows.shape[0]", "    first = rows.shape[2]")
NO_PYTHON = _fault("no_python", "def finish(rows):", "def finish(rows:")
ELSEWHERE = _fault("elsewhere", "return rows", "return rows + 1")
FAULTS = (ROWS_DOUBLED, HINTED_WRONGLY, HARMLESS, CRASHES, NO_PYTHON, ELSEWHERE)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the library without a fault."""
    folder = tmp_path_factory.mktemp("library")
    package = folder / "toy_gemm"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "epilogue.py").write_text(EPILOGUE)
    return folder


def _campaign(library: Path, output: Path, faults: tuple[Fault, ...] = FAULTS, budget: float = 600.0) -> Campaign:
    target = Target(KERNEL, "toy_gemm", str(library))
    return Campaign(target, "smoke", faults, output, Settings(2, 2, 60.0, budget), case_ids=CASES)


@pytest.fixture(scope="module")
def output(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("output") / "run"
    _campaign(library, folder).run()
    return folder


@pytest.fixture
def rows(output: Path) -> dict[str, Row]:
    """What was found, by fault."""
    results = Results(output)
    return {fault.name: row(fault, results) for fault in FAULTS}


def test_faults_are_caught_missed_and_left_out(rows: dict[str, Row]):
    """Each fault has the state that it deserves; a crash is caught, what doesn't load is not."""
    assert {name: found.state for name, found in rows.items()} == {
        "rows_doubled": "caught",
        "hinted_wrongly": "caught",
        "harmless": "not caught",
        "crashes": "caught",
        "no_python": "does not compile",
        "elsewhere": "not applicable",
    }
    assert "stands 0 times in toy_gemm/epilogue.py of toy-gemm unknown" in rows["elsewhere"].reason


def test_only_what_passes_without_the_fault_counts(rows: dict[str, Row], output: Path):
    """The case that fails without a fault catches nothing and is not counted as judged."""
    assert Results(output).of(None)[WRONG_ANYWAY]["outcome"] == "fail"
    assert all(WRONG_ANYWAY not in found.judged and WRONG_ANYWAY not in found.caught for found in rows.values())
    assert rows["crashes"].caught.keys() == {ONE_ROW}


def test_all_other_cases_follow_the_chosen_ones(rows: dict[str, Row]):
    """A fault that its chosen cases miss is tried on the others; one that they catch is not."""
    assert rows["hinted_wrongly"].caught.keys() == {THREE_ROWS}
    assert rows["rows_doubled"].judged.keys() == {THREE_ROWS}
    assert rows["harmless"].judged.keys() == {ONE_ROW, THREE_ROWS}
    assert rows["rows_doubled"].regimes == {"random": (1, 1)}


def test_seeded_copies_are_removed(output: Path, library: Path):
    """Nothing is left of a seeded build, and the library is as it was."""
    assert list((output / "seeded").iterdir()) == []
    assert (library / "toy_gemm" / "epilogue.py").read_text() == EPILOGUE


def test_a_second_call_judges_what_is_missing(library: Path, output: Path, tmp_path: Path):
    """Results cut off at any place are completed and never judged again."""
    lines = (output / "results.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"fault": "crashes"' not in line]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "results.jsonl").write_text("".join(kept) + '{"fault": "crashes", "ca')
    said: list[str] = []
    campaign = _campaign(library, folder)
    campaign._say = said.append
    campaign.run()
    assert [line.split(":")[0] for line in said] == ["crashes"]
    assert row(CRASHES, Results(folder)).caught.keys() == {ONE_ROW}


def test_an_edited_fault_has_no_results(output: Path):
    """Verdicts on another change of the same name count for nothing."""
    edited = replace(ROWS_DOUBLED, replacement="rows[1:first] *= 4 * STEP")
    assert row(edited, Results(output)).state == "open"


def test_nothing_is_begun_after_the_budget(library: Path, tmp_path: Path):
    """Without budget nothing is judged, and the tables say what is left."""
    campaign = _campaign(library, tmp_path, (ROWS_DOUBLED,), budget=0.0)
    campaign.run()
    tables = render(campaign.results, (ROWS_DOUBLED,))
    assert "| open | 1 |" in tables
    assert "(3 of 3 cases were not judged)" in tables


def test_cases_of_older_paths_are_not_counted(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A plan that has a case on older paths too brings it once."""
    older = Device("sm_80_on_sm_90", "cuda", sm=80, hardware_sm=90)

    def with_older_path(options: RunOptions) -> tuple[Task, ...]:
        plan = make_plan(options)
        return (*plan, *(replace(task, device=older, support=Support("yes")) for task in plan))

    monkeypatch.setattr(runner, "make_plan", with_older_path)
    campaign = _campaign(library, tmp_path / "run")
    assert [case.id for case in campaign.cases] == list(CASES)
    assert campaign.results.planned == CASES


def test_results_of_another_build_are_refused(output: Path, tmp_path: Path):
    """A folder's results are continued for the same build only."""
    package = tmp_path / "toy_gemm"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "epilogue.py").write_text(EPILOGUE + "\n")
    with pytest.raises(ResultsError, match="name another folder"):
        _campaign(tmp_path, output)


def test_command_writes_the_tables_into_a_page(output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The page keeps its prose; the tables count their own rows; a page without marker is refused."""
    page = tmp_path / "page.md"
    page.write_text(f"# Prose\n\n{MARKER}\n\nold\n")
    assert main(["--output", str(output), "--tables-only", "--page", str(page)], FAULTS) == 0
    text = page.read_text()
    assert text.startswith(f"# Prose\n\n{MARKER}\n\ntoy-gemm unknown")
    assert "old" not in text
    assert "| not caught | 1 |" in text
    assert "| random | 3 | 4 |" in text
    assert f"First caught by `{THREE_ROWS}`" in text
    page.write_text("# Prose\n")
    assert main(["--output", str(output), "--tables-only", "--page", str(page)], FAULTS) == 2
    assert "has no line" in capsys.readouterr().err
