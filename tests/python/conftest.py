"""The package of this checkout, with the library of NNC_BUILD or build/."""
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


@pytest.fixture(scope="session")
def models():
    return ROOT / "models"
