"""The package of this checkout, with the library of NNC_BUILD or build/."""
import os
import signal
import sys
import traceback
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


@pytest.fixture(scope="session")
def models():
    return ROOT / "models"


def pytest_terminal_summary(terminalreporter):
    """As scripts/ctest.sh reads it."""
    found = terminalreporter.stats
    for skipped in found.get("skipped", ()):
        terminalreporter.write_line("skipped: " + skipped.longrepr[2].removeprefix("Skipped: "))
    count = {kind: len(found.get(kind, ())) for kind in ("passed", "failed", "error", "skipped")}
    terminalreporter.write_line(f"{count['passed']} passed, {count['failed'] + count['error']} failed, {count['skipped']} skipped")


@pytest.fixture
def in_child():
    """Calls a function in a forked process, which has a minute for it."""

    def call(f):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            signal.alarm(60)
            try:
                f()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "exit status of the child"

    return call
