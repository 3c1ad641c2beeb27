# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: options, items from the plan, verdicts as test results, the account at the end.

It does nothing unless the command line names our suites, so that it may be installed beside anything.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import humming_conformance

# An inert plugin must stay light: what imports NumPy is imported where it is used.
if TYPE_CHECKING:
    from humming_conformance.campaign.run import Outcome
    from humming_conformance.ledger import Planned
    from humming_conformance.protocols import Subject, Verdict

_SUITES = (Path(humming_conformance.__file__).parent / "suites").resolve()
_PACKAGE = "humming_conformance.suites"
#: The parameter of a suite whose plan is empty.
_NOTHING = "nothing"
_SESSION = "humming_conformance_session"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Every option's destination starts with ``conformance_``."""
    group = parser.getgroup("humming-conformance", "kernel conformance (for suites of humming-conformance)")

    def option(flag: str, destination: str, help_text: str, **more: Any) -> None:
        group.addoption(flag, dest=f"conformance_{destination}", help=help_text, **more)

    option("--tier", "tier", "lists of cases to judge: smoke, gate (default) or full", default="gate")
    option("--kernel", "kernels", "kernel name or package.module:attribute (repeat)", action="append", default=[])
    option("--device", "devices", "judge on this device only (repeat)", action="append", default=[])
    option("--case", "cases", "judge this case id instead of the tier (repeat)", action="append", default=[])
    option("--library", "libraries", "NAME=VERSION|WHEEL|FOLDER: the build to judge", action="append", default=[])
    option("--ledger", "ledger", "new folder for the ledger (default: one below .conformance)", metavar="DIR")
    option("--resume", "resume", "continue the run of this ledger folder", metavar="DIR")
    option("--waivers", "waivers", "a waiver file of your own (repeat)", action="append", default=[], metavar="FILE")
    option("--require", "require", "KERNEL[:SUITE][=N]: red if fewer were judged", action="append", default=[])
    limit_help = "seconds one case may take, compilation included (default 300)"
    option("--time-limit", "time_limit", limit_help, type=float, default=300.0, metavar="SECONDS")
    sanitize_help = "memcheck, racecheck or initcheck: judge under compute-sanitizer (docs/memory.md)"
    option("--sanitize", "sanitize", sanitize_help, default="", metavar="TOOL")
    option("--baselines", "baselines", "folder of stored measurements instead of the shipped one", metavar="DIR")
    option("--strict-verdicts", "strict", "slow and ambiguous are red too", action="store_true")
    option("--conformance-html", "html", "write the report of the run to this file", metavar="FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Take part only where the command line names our suites."""
    if not _names_our_suites(config):
        return
    with _usage_errors():
        session = _Conformance(config)
    config.pluginmanager.register(session, _SESSION)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Bad input ends the run with its one sentence."""
    try:
        yield
    except Exception as error:
        from humming_conformance.campaign.run import INPUT_ERRORS

        if isinstance(error, INPUT_ERRORS):
            raise pytest.UsageError(str(error)) from error
        raise


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse our suites where they were collected without being named: nothing would account for them."""
    if "judged" not in metafunc.fixturenames or metafunc.config.pluginmanager.has_plugin(_SESSION):
        return
    if _SUITES in metafunc.definition.path.resolve().parents:
        pytest.fail("name the suites on the command line: pytest suites", pytrace=False)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """``-n auto``: as many workers as memory, cores and GPUs carry."""
    if not _names_our_suites(config):
        return None
    from humming_conformance.execution.capacity import parallel_processes

    return parallel_processes(sanitized=bool(config.option.conformance_sanitize))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let idle xdist workers steal work: cases differ in cost by orders of magnitude."""
    if _names_our_suites(config) and config.getoption("numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def _names_our_suites(config: pytest.Config) -> bool:
    return bool(_suites_named(config))


def _suites_named(config: pytest.Config) -> list[str]:
    """Our suites that the arguments name: by a path in ``suites`` or, with --pyargs, by a dotted name."""
    named: dict[str, None] = {}
    for argument in config.args:
        text = str(argument).split("::")[0]
        path = Path(config.invocation_params.dir, text).resolve()
        if text.startswith(_PACKAGE):
            path = _SUITES.joinpath(*text.removeprefix(_PACKAGE).strip(".").split("."))
        if path == _SUITES:
            named |= dict.fromkeys(sorted(folder.parent.name for folder in _SUITES.glob("*/test_*.py")))
        elif _SUITES in path.parents:
            named[path.relative_to(_SUITES).parts[0]] = None
    return list(named)


class Judged:
    """The verdict on a test item's subject."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def require_pass(self) -> None:
        """Fail the test unless the verdict is a pass; what wasn't judged is skipped, a waived failure is an xfail."""
        __tracebackhide__ = True
        verdict = self.verdict
        if verdict.outcome in ("unsupported", "not_run"):
            pytest.skip(f"{verdict.outcome}: {verdict.reason}")
        if verdict.outcome == "waived":
            pytest.xfail(verdict.reason)
        if verdict.outcome != "pass":
            pytest.fail(f"{verdict.outcome}: {verdict.reason}\n{verdict.message}", pytrace=False)


class _Conformance:
    """Our part of one pytest session; registered only where our suites are named."""

    def __init__(self, config: pytest.Config) -> None:
        from humming_conformance.campaign.output import output_file
        from humming_conformance.campaign.plan import RunOptions
        from humming_conformance.campaign.run import Run, default_folder
        from humming_conformance.execution import parse_library_request

        option = config.option
        worker_input: dict[str, Any] = getattr(config, "workerinput", {})
        self.worker = str(worker_input.get("workerid", "main"))
        self.is_worker = bool(worker_input)
        self.workers = int(worker_input.get("workercount", 1))
        if option.conformance_ledger and option.conformance_resume:
            raise pytest.UsageError("--ledger starts a run and --resume continues one; give only one of them")
        html = option.conformance_html
        self.html = output_file("--conformance-html", html) if html is not None else None
        given = option.conformance_resume or option.conformance_ledger or default_folder()
        self.folder = Path(worker_input.get("conformance_folder", given)).absolute()
        self.run = Run(
            RunOptions(
                tier=option.conformance_tier,
                kernels=tuple(option.conformance_kernels),
                devices=tuple(option.conformance_devices),
                cases=tuple(option.conformance_cases),
                libraries=dict(parse_library_request(text) for text in option.conformance_libraries),
            ),
            self.folder,
            suites=_suites_named(config),
            resumed=bool(option.conformance_resume),
            waiver_files=[Path(file) for file in option.conformance_waivers],
            require=option.conformance_require,
            strict_verdicts=option.conformance_strict,
            time_limit=option.conformance_time_limit,
            sanitize=option.conformance_sanitize,
            **({"baselines": Path(option.conformance_baselines)} if option.conformance_baselines else {}),
        )
        self._config = config
        self.command = config.invocation_params.args
        #: What the ledger was begun with; None until then.
        self.planned: list[Planned] | None = None
        self.crashed: dict[Planned, str] = {}
        self.stopped = ""
        self.outcome: Outcome | None = None

    # Collection.

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One item for each subject of the suite's plan, where a test asks for the fixture ``judged``."""
        if "judged" in metafunc.fixturenames:
            suite = _suite_of(metafunc.definition.nodeid)
            subjects = [str(planned.subject) for planned in self.run.tasks if planned.suite == suite]
            metafunc.parametrize("judged", subjects or [_NOTHING], ids=subjects or [_NOTHING], indirect=True)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop the suites that have nothing to ask here; order the items so that workers start few kernel processes."""
        from humming_conformance.campaign.order import in_shares

        def kind(item: pytest.Item) -> tuple[str, ...]:
            planned = self._planned(item.nodeid)
            return () if planned is None else self.run.process_kind(planned)

        asked = [item for item in items if not item.nodeid.endswith(f"[{_NOTHING}]")]
        items[:] = in_shares(asked, kind, self.workers)

    @pytest.fixture
    def judged(self, request: pytest.FixtureRequest) -> Judged:
        """The settled verdict of the item's subject."""
        from humming_conformance.ledger import Planned
        from humming_conformance.protocols import Subject
        from humming_conformance.report import junit_properties

        planned = Planned(_suite_of(request.node.nodeid), Subject.parse(request.param))
        verdict = self.run.settle(planned, self.worker)
        request.node.user_properties += junit_properties(verdict)
        return Judged(verdict)

    def pytest_report_collectionfinish(self) -> list[str]:
        """What would run and, for the rest, why not."""
        from humming_conformance.report import plan_lines

        return (
            []
            if self.is_worker
            else plan_lines((task.subject.heading, task.support) for task in self.run.tasks.values())
        )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin the ledger where the items are known in this process."""
        if not self.is_worker and session.items and not session.config.option.collectonly:
            self._begin(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Begin the ledger with what the first worker collected; all collect the same."""
        if self.planned is None and ids:
            self._begin(ids)

    def _begin(self, nodeids: Iterable[str]) -> None:
        planned = list(filter(None, map(self._planned, nodeids)))
        with _usage_errors():
            self.run.begin(planned, ["pytest", *map(str, self.command)])
        self.planned = planned
        self.run.prepare(planned, self._tell)

    def _planned(self, nodeid: str) -> Planned | None:
        """The entry of the plan that an item answers, None for a test that judges none."""
        from humming_conformance.ledger import Planned

        subject = _subject_of(nodeid)
        if subject is None:
            return None
        planned = Planned(_suite_of(nodeid), subject)
        return planned if planned in self.run.tasks else None

    def _tell(self, line: str) -> None:
        """Show a line of progress."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(line)

    # Workers.

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where the ledger is."""
        node.workerinput["conformance_folder"] = str(self.folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Remember what a lost worker was running."""
        planned = self._planned(crashitem)
        if planned is not None:
            self.crashed[planned] = report.node.gateway.id

    # The end.

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember why the run stops before its end: Ctrl-C, ``pytest.exit``, or -x in a worker."""
        self.stopped = str(excinfo.value) or "Ctrl-C"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Merge the ledger and decide the exit status."""
        self.run.close()
        if self.is_worker or self.planned is None:
            return
        stopped = self.stopped or str(session.shouldfail or session.shouldstop or "")
        self.outcome = self.run.finish(self.planned, self.crashed, stopped)
        if self.outcome.status.code and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        head = self.outcome.ledger.head
        if self.html is not None and head is not None:
            from humming_conformance.report import write_html

            write_html(self.html, head, self.outcome.ledger.verdicts)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the account of the run."""
        if self.outcome is None:
            return
        from humming_conformance.report import summary_lines

        terminalreporter.section("conformance", "=")
        width = shutil.get_terminal_size().columns
        outcome = self.outcome
        for line in summary_lines(
            outcome.ledger,
            outcome.status,
            stale=outcome.stale,
            told=self.run.told,
            folder=self.folder,
            width=width,
        ):
            terminalreporter.write_line(line)


def _suite_of(nodeid: str) -> str:
    """The suite of an item, after which its file is named: the folder may be the root of the session."""
    return Path(nodeid.split("::", maxsplit=1)[0]).stem.removeprefix("test_")


def _subject_of(nodeid: str) -> Subject | None:
    """The subject of an item, None for a test that judges none."""
    from humming_conformance.protocols import Subject

    match = re.search(r"\[([^:\[\]]+:[^:\[\]]+:[^:\[\]]+)\]$", nodeid)
    return Subject.parse(match[1]) if match else None
